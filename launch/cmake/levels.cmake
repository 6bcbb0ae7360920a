# Which processors the library is compiled for, and what it is called then (MOELOOM_LEVEL_NAME).
#
#   MOELOOM_LEVEL v2, v3, v4   that level of x86-64; the program for every x86-64. launch/package.sh builds all of them
#   MOELOOM_NATIVE             this machine's, for oneself, on x86-64
#   neither, and other families  the family's least, as NEON is that of AArch64
set(MOELOOM_X86 FALSE)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(MOELOOM_X86 TRUE)
endif()
if(MOELOOM_LEVEL AND NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "MOELOOM_LEVEL is of a shared library, of which the loader picks: add -DBUILD_SHARED_LIBS=ON")
endif()
if(MOELOOM_LEVEL AND NOT (MOELOOM_X86 AND MOELOOM_LEVEL MATCHES "^v[234]$"))
  message(FATAL_ERROR "MOELOOM_LEVEL=${MOELOOM_LEVEL}: expected v2, v3 or v4, on x86-64; this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()

set(MOELOOM_FOR_PROCESSORS "")
string(REPLACE "x86_64" "x86-64" MOELOOM_LEVEL_NAME "${CMAKE_SYSTEM_PROCESSOR}")
if(MOELOOM_LEVEL)
  set(MOELOOM_LEVEL_NAME x86-64-${MOELOOM_LEVEL})
  set(MOELOOM_FOR_PROCESSORS -march=${MOELOOM_LEVEL_NAME} -mprefer-vector-width=512)
elseif(MOELOOM_NATIVE AND MOELOOM_X86 AND NOT CMAKE_CROSSCOMPILING)
  set(MOELOOM_LEVEL_NAME native)
  set(MOELOOM_FOR_PROCESSORS -march=native -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang$" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
    list(APPEND MOELOOM_FOR_PROCESSORS -Wno-invalid-feature-combination)  # which clang makes itself of "native"
  endif()
endif()
add_compile_options(${MOELOOM_FOR_PROCESSORS})

include(CheckCXXSourceCompiles)

# Behind each other, the last one counts.
set(MOELOOM_FOR_EVERY_PROCESSOR -march=x86-64 -mtune=generic)

# Files for instructions that not every such processor has are compiled with them alone, behind their check at run
# time. Both have vectors of AVX-512 around them.
function(moeloom_bf16_sources)
  list(JOIN MOELOOM_FOR_PROCESSORS " " CMAKE_REQUIRED_FLAGS)
  set(source "#ifndef __AVX512F__\n#error\n#endif\nint main() {}")
  check_cxx_source_compiles("${source}" MOELOOM_HAS_AVX512_AROUND)
  if(MOELOOM_HAS_AVX512_AROUND)
    set_source_files_properties(src/kernels/tile/pair_tile.cpp PROPERTIES COMPILE_OPTIONS -mavx512bf16)
    set_source_files_properties(src/kernels/tile/matrix_tile.cpp PROPERTIES COMPILE_OPTIONS "-mamx-tile;-mamx-bf16")
    # A precompiled header knows other instructions.
    set_source_files_properties(src/kernels/tile/pair_tile.cpp src/kernels/tile/matrix_tile.cpp
                                PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# What is linked last looks at the processor first. On other families than x86-64 nothing is compiled for one.
function(moeloom_cpu_check target)
  if(NOT MOELOOM_X86)
    return()
  endif()
  target_sources(${target} PRIVATE src/base/start/cpu_check.cpp src/base/start/needed_features.cpp)
  target_include_directories(${target} PRIVATE src/base)
  # It runs before what a sanitizer needs.
  set_source_files_properties(src/base/start/cpu_check.cpp PROPERTIES
                              COMPILE_OPTIONS "${MOELOOM_FOR_EVERY_PROCESSOR};-fno-sanitize=all")
endfunction()
