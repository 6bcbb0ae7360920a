#include <iostream>
#include <moeloom/base/version.hpp>

int main() {
  std::cout << moeloom::kVersion << ' ' << moeloom::library_level() << '\n';
}
