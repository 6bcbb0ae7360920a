# Debian's cross compiler for aarch64, with the libraries that tests/arm/sysroot.sh unpacks into MOELOOM_SYSROOT, and qemu
# for what is run on the way.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MOELOOM_SYSROOT)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${MOELOOM_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${MOELOOM_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${MOELOOM_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(libraries ${MOELOOM_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MOELOOM_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${MOELOOM_SYSROOT}/usr/share/pkgconfig)
# mpicxx of that machine cannot be asked here.
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_CXX_SKIP_MPICXX ON CACHE BOOL "")  # nor has it the C++ interface that MPI 3 removed
set(MPI_mpi_LIBRARY ${libraries}/libmpi.so CACHE FILEPATH "")
set(MPI_CXX_HEADER_DIR ${libraries}/openmpi/include CACHE PATH "")
