#include "moeloom/comm/session.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Session, StartsMpiOnceAProcess) {
  int argc = 0;
  char** argv = nullptr;
  EXPECT_THROW(Session(argc, argv), MpiError);
  EXPECT_NO_THROW(Communicator::world().barrier());  // the first one still runs
}

TEST(Session, NamesTheLibrary) {
  EXPECT_FALSE(std::string(mpi_library_version()).empty());
}

}  // namespace
}  // namespace moeloom
