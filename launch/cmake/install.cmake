# cmake --install: bin/moeloom, the headers, the library, find_package(moeloom) for moeloom::moeloom, and moeloom.pc.
# Outside libraries are exported by target name and found again, so that no path of this machine is written down.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(moeloom_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moeloom)
# Components: of archives everything but the shared library, which is `shared`, to be asked for; else `program`, with the
# library that it uses, `dev`, and of a build with MOELOOM_LEVEL the library alone as `level`.
set(not_asked EXCLUDE_FROM_ALL)
set(library shared)
set(for_developers shared)
set(library_dir ${CMAKE_INSTALL_LIBDIR})
if(BUILD_SHARED_LIBS)
  set(not_asked "")
  set(library program)
  set(for_developers dev)
  if(MOELOOM_LEVEL)
    set(library level)
    string(APPEND library_dir /glibc-hwcaps/${MOELOOM_LEVEL_NAME})  # where the loader looks first
  endif()
  set_target_properties(moeloom PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
else()
  install(TARGETS ${MOELOOM_LIBRARIES} moeloom_all EXPORT moeloomTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT moeloomTargets NAMESPACE moeloom:: DESTINATION ${moeloom_package_dir})
  if(NOT MOELOOM_TESTS)
    set_target_properties(moeloom_shared moeloom_c PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
endif()
install(TARGETS moeloom_shared moeloom_c EXPORT moeloomShared LIBRARY DESTINATION ${library_dir} COMPONENT ${library}
                                                            NAMELINK_COMPONENT ${for_developers} ${not_asked})
install(EXPORT moeloomShared NAMESPACE moeloom:: DESTINATION ${moeloom_package_dir} COMPONENT ${for_developers} ${not_asked})
set(program Unspecified)
set(developers Unspecified shared)
if(BUILD_SHARED_LIBS)
  set(program program)
  set(developers dev)
endif()
install(TARGETS moeloom RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${program})
file(WRITE ${PROJECT_BINARY_DIR}/moeloomConfig.cmake [[
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/moeloomTargets.cmake")
  include(CMakeFindDependencyMacro)
  find_dependency(MPI COMPONENTS CXX)
  find_dependency(OpenMP COMPONENTS CXX)
  set(moeloom_bla_vendor "${BLA_VENDOR}")
  set(BLA_VENDOR OpenBLAS)
  find_dependency(BLAS)
  set(BLA_VENDOR "${moeloom_bla_vendor}")
  find_dependency(nlohmann_json)
  find_dependency(ZLIB)
  find_dependency(PkgConfig)
  pkg_check_modules(ONIGURUMA REQUIRED IMPORTED_TARGET oniguruma)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
  include("${CMAKE_CURRENT_LIST_DIR}/moeloomTargets.cmake")
else()
  include("${CMAKE_CURRENT_LIST_DIR}/moeloomShared.cmake")
endif()
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moeloomConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
# For `mpicxx $(pkg-config --cflags --libs moeloom)`, of the archives and of the shared library. Archives name those that
# they need behind them. Paths start at the file's own, wherever the prefix lies.
file(RELATIVE_PATH pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})  # Debian's lib has folders
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
list(TRANSFORM MOELOOM_LIBRARIES PREPEND -l OUTPUT_VARIABLE pc_archives)
list(REVERSE pc_archives)
list(TRANSFORM BLAS_LIBRARIES REPLACE ".*/lib([^/]+)\\.(so|a)$" "-l\\1" OUTPUT_VARIABLE blas)
list(APPEND pc_archives ${blas} ${OpenMP_CXX_FLAGS})
function(moeloom_pkg_config file requires)
  list(JOIN ARGN " " libraries)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT [[
prefix=${pcfiledir}/@pc_up@
Name: @PROJECT_NAME@
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
@requires@Cflags: -I${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L${pcfiledir}/.. @libraries@
]])
endfunction()
moeloom_pkg_config(${PROJECT_BINARY_DIR}/archives/moeloom.pc "Requires: oniguruma libutf8proc zlib\n" ${pc_archives})
moeloom_pkg_config(${PROJECT_BINARY_DIR}/shared/moeloom.pc "" -lmoeloom)
foreach(component ${developers})
  set(unless "")
  set(pc archives)
  if(component STREQUAL shared OR BUILD_SHARED_LIBS)
    set(pc shared)
  endif()
  if(component STREQUAL shared)
    set(unless EXCLUDE_FROM_ALL)
  endif()
  install(DIRECTORY include/moeloom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${component} ${unless})
  install(FILES ${PROJECT_BINARY_DIR}/moeloomConfig.cmake ${PROJECT_BINARY_DIR}/moeloomConfigVersion.cmake
          DESTINATION ${moeloom_package_dir} COMPONENT ${component} ${unless})
  install(FILES ${PROJECT_BINARY_DIR}/${pc}/moeloom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component} ${unless})
endforeach()
