# Compiling for macOS on another machine, with what check_darwin.sh lays into FASTIO_TOOLS and FASTIO_HEADERS.
set(CMAKE_SYSTEM_NAME Darwin)
get_filename_component(CMAKE_SYSTEM_PROCESSOR ${FASTIO_TOOLS} NAME)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FASTIO_TOOLS FASTIO_HEADERS)
set(CMAKE_CXX_COMPILER ${FASTIO_TOOLS}/c++)
set(CMAKE_AR ${FASTIO_TOOLS}/ar)
set(CMAKE_RANLIB ${FASTIO_TOOLS}/ranlib)
set(CMAKE_INSTALL_NAME_TOOL /bin/false) # CMake asks for one; nothing is installed
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_OSX_DEPLOYMENT_TARGET 11.0) # the first that runs on ARM, and has preadv
# Their headers are here, they themselves are not, and nothing is linked.
foreach(library IN ITEMS JPEG DEFLATE HIGHWAY WEBP WEBPDEMUX)
  set(${library}_INCLUDE ${FASTIO_HEADERS})
  set(${library}_LIBRARY ${FASTIO_HEADERS}/lib${library}.a)
endforeach()
