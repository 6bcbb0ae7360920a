# Which compilers there must be, said before anything fails deep inside.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(least 12)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang$")
  set(least 16)
else()
  set(least "")
  message(WARNING "moeloom is tried with GCC and clang; ${CMAKE_CXX_COMPILER_ID} is neither")
endif()
if(least AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS least)
  message(FATAL_ERROR "moeloom needs GCC from 12 on or clang from 16 on; ${CMAKE_CXX_COMPILER} is "
                      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. Name another by -DCMAKE_CXX_COMPILER=")
endif()
