# By name: its number of threads is set around each call, and its name is part of what was measured with it.
set(BLA_VENDOR OpenBLAS)
find_package(BLAS)
find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
if(BLAS_FOUND AND CBLAS_INCLUDE_DIR)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
  set(CMAKE_REQUIRED_INCLUDES ${CBLAS_INCLUDE_DIR})
  check_cxx_source_compiles("#include <cblas.h>\nint main() { openblas_set_num_threads(1); }" MOELOOM_BLAS_IS_OPENBLAS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(NOT MOELOOM_BLAS_IS_OPENBLAS)
  # To be asked again when it is installed.
  unset(MOELOOM_BLAS_IS_OPENBLAS CACHE)
  message(FATAL_ERROR "moeloom needs OpenBLAS with its cblas.h (on Debian: apt install libopenblas-dev), as no other BLAS "
                      "has openblas_set_num_threads; found the library ${BLAS_LIBRARIES} and the header's folder "
                      "${CBLAS_INCLUDE_DIR}")
endif()
