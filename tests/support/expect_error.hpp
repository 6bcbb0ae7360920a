// The text of an error, so that a test can say what a person must be told.
#pragma once

#include <exception>
#include <string>

namespace moeloom::testing {

/// What `action` throws as Exception says; "nothing thrown" if it throws nothing. Other exceptions pass
/// through.
template <typename Exception, typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace moeloom::testing
