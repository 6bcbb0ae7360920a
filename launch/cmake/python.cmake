# The Python package: installed where Debian's python3 looks, tested by ctest `python`, and what `pip install src/python`
# packs (component `wheel`).
find_package(Python3 COMPONENTS Interpreter)
set(MOELOOM_PYTHON_DIR "" CACHE STRING "where the Python package is installed, below the prefix; empty: as Debian's python3 looks")
set(python_component Unspecified)
if(BUILD_SHARED_LIBS)
  set(python_component program)
endif()
# The prefix is known when it is installed. In /usr/local Debian's python3 looks in the folder of its own version alone.
string(CONFIGURE [[
  set(folder "@MOELOOM_PYTHON_DIR@")
  if(NOT folder AND CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
    set(folder "lib/python@Python3_VERSION_MAJOR@.@Python3_VERSION_MINOR@/dist-packages")
  elseif(NOT folder)
    set(folder lib/python3/dist-packages)
  endif()
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${folder}" TYPE DIRECTORY
       FILES "@PROJECT_SOURCE_DIR@/src/python/moeloom" PATTERN __pycache__ EXCLUDE)
]] install_package @ONLY)
install(CODE "${install_package}" COMPONENT ${python_component})

if(SKBUILD)
  install(TARGETS moeloom_c LIBRARY DESTINATION moeloom COMPONENT wheel NAMELINK_SKIP)
  install(TARGETS moeloom RUNTIME DESTINATION moeloom/bin COMPONENT wheel)
endif()

if(MOELOOM_TESTS AND Python3_FOUND AND TARGET moeloom_c)
  # Skipped with a word where python3-numpy or python3-torch is missing.
  add_test(NAME python COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/python/run.py)
  set_tests_properties(python PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 PROCESSORS 2 ENVIRONMENT
                       "MOELOOM_LIBRARY=$<TARGET_FILE:moeloom_c>;MOELOOM_PROGRAM=$<TARGET_FILE:moeloom>;OMP_NUM_THREADS=2")
endif()
