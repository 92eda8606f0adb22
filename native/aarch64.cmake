# Building for 64-bit ARM on another machine, with what install_aarch64.sh installs; tests run by qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
get_filename_component(FASTIO_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64/sysroot ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${FASTIO_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
# Debian keeps headers that differ between processors (jconfig.h, pyconfig.h) in a folder of their own.
set(CMAKE_CXX_FLAGS_INIT
    "-isystem ${FASTIO_SYSROOT}/usr/include -isystem ${FASTIO_SYSROOT}/usr/include/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/aarch64-linux-gnu")
