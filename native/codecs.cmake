# Finds the libraries that the core is built with, or ends with one line that names all that is missing and what to install.
# Where there is no compiler (HAS_COMPILER is false) or no header of Python, the line names these too.

# Static archives where there are any, so that a wheel carries them: Debian's are position independent.
find_path(JPEG_INCLUDE jpeglib.h)
find_library(JPEG_LIBRARY NAMES libjpeg.a jpeg)
find_path(DEFLATE_INCLUDE libdeflate.h)
find_library(DEFLATE_LIBRARY NAMES libdeflate.a deflate)
find_path(HIGHWAY_INCLUDE hwy/highway.h) # headers only
# Without it Pillow decodes WebPs.
find_path(WEBP_INCLUDE webp/demux.h)
find_library(WEBP_LIBRARY NAMES libwebp.a webp)
find_library(WEBPDEMUX_LIBRARY NAMES libwebpdemux.a webpdemux)

# Adds what is missing to the message: what it is, and the packages of several systems that bring it.
macro(name_missing what debian fedora conda brew)
  list(APPEND missing "${what}")
  list(APPEND apt ${debian})
  list(APPEND dnf ${fedora})
  list(APPEND conda_forge ${conda})
  list(APPEND homebrew ${brew})
endmacro()

# Names a library as missing unless all these variables say where its parts are.
macro(require what debian fedora conda brew)
  foreach(variable IN ITEMS ${ARGN})
    if(NOT ${variable})
      name_missing("${what}" ${debian} ${fedora} ${conda} ${brew})
      break()
    endif()
  endforeach()
endmacro()

if(DEFINED HAS_COMPILER AND NOT HAS_COMPILER)
  name_missing("a C++20 compiler" g++ gcc-c++ cxx-compiler gcc)
endif()
# scikit-build-core tells the folder of Python's headers whether they are there or not.
if(Python_INCLUDE_DIR AND NOT EXISTS "${Python_INCLUDE_DIR}/Python.h")
  get_filename_component(python "${Python_INCLUDE_DIR}" NAME)
  name_missing("Python's headers (Python.h)" ${python}-dev python3-devel python python)
endif()
require("libjpeg-turbo (jpeglib.h)" libjpeg62-turbo-dev libjpeg-turbo-devel libjpeg-turbo jpeg-turbo
        JPEG_INCLUDE JPEG_LIBRARY)
require("libdeflate (libdeflate.h)" libdeflate-dev libdeflate-devel libdeflate libdeflate
        DEFLATE_INCLUDE DEFLATE_LIBRARY)
require("Highway (hwy/highway.h)" libhwy-dev highway-devel libhwy highway HIGHWAY_INCLUDE)
if(missing) # something has to be installed anyway
  require("libwebp (webp/demux.h, for WebP)" libwebp-dev libwebp-devel libwebp webp
          WEBP_INCLUDE WEBP_LIBRARY WEBPDEMUX_LIBRARY)
  list(JOIN missing ", " missing)
  foreach(packages IN ITEMS apt dnf conda_forge homebrew)
    list(JOIN ${packages} " " ${packages})
  endforeach()
  # Indented, so that CMake does not break the line.
  message(FATAL_ERROR "  fastio needs ${missing}: apt install ${apt} | dnf install ${dnf} | conda install -c conda-forge ${conda_forge} | brew install ${homebrew}")
endif()
