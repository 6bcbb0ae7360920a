# libmoeloom_c.so: moeloom.h for C, made of the objects of the rooms that it needs. It shows ml_* alone, so that a process
# may have another moeloom beside it.
file(GLOB c_sources CONFIGURE_DEPENDS src/c/*.cpp)
add_library(moeloom_c_room OBJECT ${c_sources})
target_compile_features(moeloom_c_room PRIVATE cxx_std_20)
target_include_directories(moeloom_c_room PRIVATE include src src/c)
moeloom_precompile(moeloom_c_room REUSE_FROM moeloom_tensor)

set(c_rooms base tensor io job comm kernels moe model train plan c_room)
list(TRANSFORM c_rooms REPLACE "(.+)" "$<TARGET_OBJECTS:moeloom_\\1>" OUTPUT_VARIABLE objects)
add_library(moeloom_c SHARED ${objects})
add_library(moeloom::c ALIAS moeloom_c)
# The version is ML_ABI of the header: a name for what is compatible.
set_target_properties(moeloom_c PROPERTIES EXPORT_NAME c VERSION 1 SOVERSION 1 LINKER_LANGUAGE CXX
                                           LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/c/exports.map)
moeloom_cpu_check(moeloom_c)
target_link_options(moeloom_c PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/c/exports.map)
target_include_directories(moeloom_c INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(moeloom_c PRIVATE OpenMP::OpenMP_CXX BLAS::BLAS nlohmann_json::nlohmann_json ZLIB::ZLIB MPI::MPI_CXX)
