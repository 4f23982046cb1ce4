# cpack -G DEB makes Debian packages of the parts of GradwireInstall.cmake. Configure with -DCMAKE_INSTALL_PREFIX=/usr
# (preset `package`), so that libraries go to the folder of the architecture.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gradwire)
set(CPACK_PACKAGE_VENDOR gradwire)
set(CPACK_PACKAGE_CONTACT "The gradwire developers <gradwire@localhost>")  # in the field Maintainer: name the builder
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# The licence, and the notices that the licences of included libraries require.
file(READ ${PROJECT_SOURCE_DIR}/LICENSE licence)
file(READ ${PROJECT_SOURCE_DIR}/cmake/NOTICES notices)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/copyright CONTENT "@licence@\n@notices@" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/cmake/NOTICES)

# gradwire_package(COMPONENT NAME SECTION DESCRIPTION) puts both where Debian looks for them, which no other
# installation does.
set(CPACK_COMPONENTS_ALL "")
function(gradwire_package component name section description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

set(library libgradwire${PROJECT_VERSION_MAJOR})
set(this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(dev_depends g++ pkg-config)
if(GRADWIRE_HAVE_MPI OR BUILD_SHARED_LIBS OR TARGET gradwire_nccl)
  gradwire_package(library ${library} libs
    "Shared libraries
 The C library that programs are linked with, and the libraries that gradwire
 run preloads into unchanged MPI jobs.")
  # ldconfig must know this library: dpkg runs the trigger once for all packages of a call.
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
  list(PREPEND dev_depends "${library} ${this_version}")
endif()
if(GRADWIRE_HAVE_MPI)
  list(APPEND dev_depends libopenmpi-dev)
endif()

gradwire_package(dev libgradwire-dev libdevel
  "Headers, archives and documents
 What programs are built with against gradwire: headers for C++ and C,
 archives, the CMake package, pkg-config files, and all documents.")
list(JOIN dev_depends ", " CPACK_DEBIAN_DEV_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "libtorch-dev, cmake")

if(TARGET gradwire_tool)
  gradwire_package(tools gradwire-tools utils
    "The tool gradwire
 Explains policies, predicts step times, shows the build, and runs unchanged
 MPI jobs with compressed collectives. Man pages, completion, policies.")
  if("library" IN_LIST CPACK_COMPONENTS_ALL)
    set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${library} ${this_version}")
    set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS openmpi-bin)
  endif()
endif()
set(suggested "")
if(TARGET gradwire_export_http)
  gradwire_package(export gradwire-export libs
    "Metrics of running jobs over HTTP
 The library that sessions and drop-ins load where a job is started with
 GRADWIRE_METRICS=http:PORT, for Prometheus.")
  list(APPEND suggested gradwire-export)
endif()
if(TARGET gradwire_security_openssl)
  gradwire_package(security gradwire-security libs
    "Keys of jobs
 The library that gradwire loads where a job has a key. It is built on
 OpenSSL.")
  list(APPEND suggested gradwire-security)
endif()
if(TARGET gradwire_mpich_drop_in)
  gradwire_package(mpich gradwire-mpich libs
    "The drop-in for jobs of MPICH
 The library that gradwire run preloads into unchanged jobs of MPICH.")
  list(APPEND suggested gradwire-mpich)
  set(CPACK_DEBIAN_MPICH_PACKAGE_ENHANCES gradwire-tools)
endif()
list(JOIN suggested ", " CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS)
include(CPack)
