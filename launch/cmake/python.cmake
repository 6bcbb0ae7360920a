# The Python package and its library: installed where Debian's python3 looks, tested by ctest `python`, and what
# `pip install src/python` packs (component `wheel`).
option(MOELOOM_PYTHON "Install the Python package, with libmoeloom_c.so" ${PROJECT_IS_TOP_LEVEL})
if(NOT MOELOOM_PYTHON OR NOT TARGET moeloom_c)
  return()
endif()
find_program(MOELOOM_PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)  # Debian's, whatever else is in PATH
find_program(MOELOOM_PYTHON3 python3)

if(SKBUILD)
  install(TARGETS moeloom_c LIBRARY DESTINATION moeloom COMPONENT wheel NAMELINK_SKIP)
  install(TARGETS moeloom RUNTIME DESTINATION moeloom/bin COMPONENT wheel)
endif()

set(python_component program)
if(NOT BUILD_SHARED_LIBS)
  set(python_component Unspecified)
  set_target_properties(moeloom_c PROPERTIES EXCLUDE_FROM_ALL FALSE)
  install(TARGETS moeloom_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
endif()
# The prefix is known when it is installed. In /usr/local Debian's python3 looks in the folder of its own version alone.
set(MOELOOM_PYTHON_DIR "" CACHE STRING "where the Python package is installed, below the prefix; empty: as Debian looks")
string(CONFIGURE [[
  set(folder "@MOELOOM_PYTHON_DIR@")
  if(NOT folder AND CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
    execute_process(COMMAND "@MOELOOM_PYTHON3@" -c "import sys; print('lib/python%d.%d/dist-packages' % sys.version_info[:2])"
                    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT folder)
    set(folder lib/python3/dist-packages)
  endif()
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${folder}" TYPE DIRECTORY
       FILES "@PROJECT_SOURCE_DIR@/src/python/moeloom" PATTERN __pycache__ EXCLUDE)
]] install_package @ONLY)
install(CODE "${install_package}" COMPONENT ${python_component})

if(MOELOOM_TESTS AND MOELOOM_PYTHON3)
  # Skipped with a word where python3-numpy or python3-torch is missing.
  add_test(NAME python COMMAND ${MOELOOM_PYTHON3} ${PROJECT_SOURCE_DIR}/tests/python/run.py)
  set_tests_properties(python PROPERTIES TIMEOUT 1800 SKIP_RETURN_CODE 77 PROCESSORS 2 ENVIRONMENT
                       "MOELOOM_LIBRARY=$<TARGET_FILE:moeloom_c>;MOELOOM_PROGRAM=$<TARGET_FILE:moeloom>;OMP_NUM_THREADS=2")
  if(MOELOOM_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Python is not built for it, so its library has to be loaded first, with that whose exceptions it watches. What
    # Python and torch never free is not ours.
    foreach(library asan stdc++)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${library}.so OUTPUT_VARIABLE file
                      OUTPUT_STRIP_TRAILING_WHITESPACE)
      list(APPEND preloaded ${file})
    endforeach()
    list(JOIN preloaded ":" preloaded)
    set_property(TEST python PROPERTY ENVIRONMENT_MODIFICATION LD_PRELOAD=path_list_prepend:${preloaded}
                                      ASAN_OPTIONS=string_append::detect_leaks=0
                                      MOELOOM_MPIRUN=set:${PROJECT_SOURCE_DIR}/launch/check/mpirun.sh)
    set_property(TEST python PROPERTY TIMEOUT 3600)
  endif()
endif()
