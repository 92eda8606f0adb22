# Finds the libraries that the core is built with, or ends with one line that names all that is missing and what to install.

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

# Adds what a missing library is called to the lists of the message.
macro(require what debian fedora conda brew)
  foreach(variable IN ITEMS ${ARGN})
    if(NOT ${variable})
      list(APPEND missing "${what}")
      list(APPEND apt ${debian})
      list(APPEND dnf ${fedora})
      list(APPEND conda_forge ${conda})
      list(APPEND homebrew ${brew})
      break()
    endif()
  endforeach()
endmacro()
require("libjpeg-turbo (jpeglib.h)" libjpeg62-turbo-dev libjpeg-turbo-devel libjpeg-turbo jpeg-turbo
        JPEG_INCLUDE JPEG_LIBRARY)
require("libdeflate (libdeflate.h)" libdeflate-dev libdeflate-devel libdeflate libdeflate
        DEFLATE_INCLUDE DEFLATE_LIBRARY)
require("Highway (hwy/highway.h)" libhwy-dev highway-devel libhwy highway HIGHWAY_INCLUDE)
if(missing)
  list(JOIN missing ", " missing)
  foreach(packages IN ITEMS apt dnf conda_forge homebrew)
    list(JOIN ${packages} " " ${packages})
  endforeach()
  # Indented, so that CMake does not break the line.
  message(FATAL_ERROR "  fastio needs ${missing}: apt install ${apt} | dnf install ${dnf} | conda install -c conda-forge ${conda_forge} | brew install ${homebrew}")
endif()
