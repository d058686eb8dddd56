# SPDX-License-Identifier: MIT
#
# Finds what libmonobolt is linked with. Used by the build, and installed beside the CMake
# package, because whoever links libmonobolt.a needs the same libraries.
#
#   monobolt_find_dependencies()
#
# defines an imported target monobolt::NAME for each, and sets
#   MONOBOLT_DEPENDENCIES          the targets to link
#   MONOBOLT_DEPENDENCIES_MISSING  what was not found, in words
#
# A new dependency of the library is a line in the list below, its name in
# MONOBOLT_DEPENDENCIES, and a line in scripts/packages.txt. libjpeg may be missing: MONOBOLT_JPEG,
# ON unless it was set before, says whether to look for it, and then whether it was found.
#
# Libraries are looked for by name and header. oneDNN's own CMake package is not used: as
# Debian builds it, it asks for the OpenCL headers, which nothing here needs.

include_guard()

# name, header, library, pkg-config module that knows where, what to tell a person
function(monobolt_find_dependency name header library module package)
  if(TARGET monobolt::${name})
    return()
  endif()
  set(hints_include)
  set(hints_library)
  if(PKG_CONFIG_FOUND AND module)
    pkg_check_modules(MB_PC_${name} QUIET ${module})
    set(hints_include ${MB_PC_${name}_INCLUDE_DIRS})
    set(hints_library ${MB_PC_${name}_LIBRARY_DIRS})
  endif()
  find_path(MB_${name}_INCLUDE_DIR ${header} HINTS ${hints_include})
  find_library(MB_${name}_LIBRARY ${library} HINTS ${hints_library})
  mark_as_advanced(MB_${name}_INCLUDE_DIR MB_${name}_LIBRARY)
  if(NOT MB_${name}_INCLUDE_DIR OR NOT MB_${name}_LIBRARY)
    list(APPEND MONOBOLT_DEPENDENCIES_MISSING
         "${name} (${header} and lib${library}; on Debian ${package})")
    set(MONOBOLT_DEPENDENCIES_MISSING "${MONOBOLT_DEPENDENCIES_MISSING}" PARENT_SCOPE)
    return()
  endif()
  add_library(monobolt::${name} UNKNOWN IMPORTED)
  set_target_properties(monobolt::${name} PROPERTIES
                        IMPORTED_LOCATION "${MB_${name}_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${MB_${name}_INCLUDE_DIR}")
endfunction()

# A runtime library of gcc (gomp, quadmath), in gcc's own folder: any compiler of this
# system is asked where that is. Sets MB_NAME_LIBRARY.
function(monobolt_find_gcc_library name)
  set(folders)
  foreach(compiler ${CMAKE_C_COMPILER} gcc)
    execute_process(COMMAND ${compiler} -print-file-name=lib${name}.so
                    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                    RESULT_VARIABLE failed)
    get_filename_component(folder "${path}" DIRECTORY)
    if(NOT failed AND folder)
      list(APPEND folders ${folder})
    endif()
  endforeach()
  find_library(MB_${name}_LIBRARY NAMES ${name} HINTS ${folders})
  mark_as_advanced(MB_${name}_LIBRARY)
endfunction()

# The OpenMP runtime that oneDNN brings. It is linked by name, not with -fopenmp: clang
# would bring a second runtime, and what the pool tells the one, oneDNN would not hear.
function(monobolt_find_gomp)
  if(TARGET monobolt::gomp)
    return()
  endif()
  monobolt_find_gcc_library(gomp)
  if(NOT MB_gomp_LIBRARY)
    list(APPEND MONOBOLT_DEPENDENCIES_MISSING "gomp (libgomp; comes with gcc)")
    set(MONOBOLT_DEPENDENCIES_MISSING "${MONOBOLT_DEPENDENCIES_MISSING}" PARENT_SCOPE)
    return()
  endif()
  add_library(monobolt::gomp UNKNOWN IMPORTED)
  set_target_properties(monobolt::gomp PROPERTIES IMPORTED_LOCATION "${MB_gomp_LIBRARY}")
endfunction()

macro(monobolt_find_dependencies)
  set(MONOBOLT_DEPENDENCIES_MISSING)
  find_package(Threads QUIET)
  find_package(PkgConfig QUIET)
  #                        name     header    library  pkg-config Debian package
  monobolt_find_dependency(onednn   dnnl.h    dnnl     ""         libdnnl-dev)
  monobolt_find_dependency(openblas cblas.h   openblas openblas   libopenblas-dev)
  monobolt_find_dependency(lapacke  lapacke.h lapacke  lapacke    liblapacke-dev)
  monobolt_find_dependency(sleef    sleef.h   sleef    sleef      libsleef-dev)
  monobolt_find_dependency(inih     ini.h     inih     inih       libinih-dev)
  monobolt_find_dependency(jansson  jansson.h jansson  jansson    libjansson-dev)
  monobolt_find_dependency(png      png.h     png      libpng     libpng-dev)
  monobolt_find_dependency(archive  archive.h archive  libarchive libarchive-dev)
  monobolt_find_dependency(zlib     zlib.h    z        zlib       zlib1g-dev)
  monobolt_find_gomp()
  if(NOT DEFINED MONOBOLT_JPEG OR MONOBOLT_JPEG)
    set(mb_needed ${MONOBOLT_DEPENDENCIES_MISSING})
    monobolt_find_dependency(jpeg   jpeglib.h jpeg     libjpeg    libjpeg-dev)
    set(MONOBOLT_DEPENDENCIES_MISSING ${mb_needed})
    set(MONOBOLT_JPEG OFF)
    if(TARGET monobolt::jpeg)
      set(MONOBOLT_JPEG ON)
    endif()
  endif()
  set(MONOBOLT_DEPENDENCIES monobolt::onednn monobolt::lapacke monobolt::openblas monobolt::sleef
                            monobolt::inih monobolt::jansson monobolt::png monobolt::archive
                            monobolt::zlib monobolt::gomp Threads::Threads m)
  if(MONOBOLT_JPEG)
    list(INSERT MONOBOLT_DEPENDENCIES 0 monobolt::jpeg)
  endif()
endmacro()
