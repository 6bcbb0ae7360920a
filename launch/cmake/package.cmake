# cpack -G DEB: `moeloom`, the program with its libraries, and `libmoeloom-dev`. launch/package.sh --deb builds the levels
# first and names their build folders in MOELOOM_LEVEL_BUILDS.
if(NOT BUILD_SHARED_LIBS OR MOELOOM_LEVEL)  # a level is a part
  return()
endif()
set(MOELOOM_LEVEL_BUILDS "" CACHE STRING "build folders with MOELOOM_LEVEL, whose libraries belong into the package")
# Headers of others are compiled in, and their licences want to be handed on: as Debian's packages tell them.
file(READ LICENSE copyright)
string(PREPEND copyright "moeloom, by its authors\n\n")
foreach(part nlohmann-json3-dev libspdlog-dev libfmt-dev libboost-dev libxxhash-dev)
  if(EXISTS /usr/share/doc/${part}/copyright)
    file(READ /usr/share/doc/${part}/copyright words)
    string(APPEND copyright "\n----\nOf ${part}, parts of which are compiled in:\n\n${words}")
  endif()
endforeach()
file(WRITE ${PROJECT_BINARY_DIR}/copyright "${copyright}")
foreach(name moeloom libmoeloom-dev)
  set(component program)
  if(name MATCHES "-dev$")
    set(component dev)
  endif()
  install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} COMPONENT ${component})
  install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moeloom)
set(CPACK_PACKAGE_VENDOR moeloom)
set(CPACK_PACKAGE_CONTACT "the authors of moeloom <moeloom@localhost>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Levels go into the program's package.
set(CPACK_COMPONENTS_ALL program level dev)
set(CPACK_COMPONENTS_LEVEL level)  # of the builds of levels
set(CPACK_COMPONENT_PROGRAM_GROUP program)
set(CPACK_COMPONENT_LEVEL_GROUP program)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};moeloom;ALL;/")
foreach(build ${MOELOOM_LEVEL_BUILDS})
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${build};moeloom;level;/")
endforeach()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})  # of what the package itself has
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME moeloom)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "openmpi-bin, libjs-dygraphs")  # the latter for pages of runs
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "Trains language models with mixtures of experts on CPUs, over MPI, and reads and
writes them as Hugging Face folders. The loader picks the library that was
compiled for the processor: x86-64, or its levels v2, v3 and v4.")
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libmoeloom-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "moeloom (= ${PROJECT_VERSION}), libopenmpi-dev, pkg-config")
set(CPACK_DEBIAN_DEV_DESCRIPTION "Headers of libmoeloom in C++20, and what CMake and pkg-config ask for.")
include(CPack)
