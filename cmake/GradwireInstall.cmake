# cmake --install installs the tool, libraries, public headers, the CMake package (one export set per component),
# pkg-config files and documents. Each file belongs to one of the parts from which GradwirePackage.cmake makes packages:
#   library  shared objects that programs and jobs load       mpich  the drop-in for MPICH, which needs MPICH
#   dev      files to build a program with; documents         tools  the tool, its man pages, completions and example policies
#   export   metrics over HTTP, which need prometheus-cpp
#   security  keys, which need OpenSSL
#   python   the module for the Torch of one Python: in no package, since that Torch is rarely the system's
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# gradwire_install_component(COMPONENT TARGET): COMPONENT is the name of the export set and of find_package's component.
function(gradwire_install_component component target)
  install(TARGETS ${target} EXPORT gradwire-${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev)
  install(EXPORT gradwire-${component} NAMESPACE gradwire:: DESTINATION ${package_dir} COMPONENT dev)
endfunction()

# gradwire_install_headers(FILE ...) installs headers of include/gradwire.
function(gradwire_install_headers)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/include/gradwire/ OUTPUT_VARIABLE files)
  install(FILES ${files} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire COMPONENT dev)
endfunction()

if(TARGET gradwire_tool)
  install(TARGETS gradwire_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  if(TARGET gradwire_doctor_tool)
    install(TARGETS gradwire_doctor_tool RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gradwire COMPONENT tools)
  endif()
  if(TARGET gradwire_tool_documents)
    install(DIRECTORY ${GRADWIRE_TOOL_DOCUMENTS}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools)
    install(DIRECTORY ${GRADWIRE_TOOL_DOCUMENTS}/bash-completion ${GRADWIRE_TOOL_DOCUMENTS}/fish ${GRADWIRE_TOOL_DOCUMENTS}/zsh
      DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT tools)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python-free-examples/policies ${PROJECT_SOURCE_DIR}/python-free-examples/models
    ${PROJECT_SOURCE_DIR}/python-free-examples/gpus
    DESTINATION ${CMAKE_INSTALL_DATADIR}/gradwire COMPONENT tools FILES_MATCHING PATTERN "*.toml")
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/python-free-examples/skeleton DESTINATION ${CMAKE_INSTALL_DATADIR}/gradwire COMPONENT dev)

set(headers_left_out REGEX "/(mpi|mpi_transport|torch|cuda|nccl)\\.hpp$" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.hpp" PATTERN replace EXCLUDE ${headers_left_out})
gradwire_install_component(core gradwire)
foreach(component mpi torch)
  if(TARGET gradwire_${component})
    gradwire_install_component(${component} gradwire_${component})
    gradwire_install_headers(${component}.hpp)
  endif()
endforeach()

foreach(component cuda nccl)
  if(TARGET gradwire_over_${component})
    gradwire_install_component(${component} gradwire_over_${component})
    gradwire_install_headers(${component}.hpp)
  endif()
endforeach()

if(TARGET gradwire_mpi)
  gradwire_install_headers(mpi_transport.hpp)
endif()

if(TARGET gradwire_c)
  gradwire_install_component(c gradwire_c)
  gradwire_install_headers(gradwire.h tables.h mpi.h)
endif()

# The drop-ins are shared objects for LD_PRELOAD, and the header that replaces <mpi.h>.
if(TARGET gradwire_mpi_drop_in)
  install(TARGETS gradwire_mpi_drop_in gradwire_mpi_replace EXPORT gradwire-mpi
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/replace/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/replace
    COMPONENT dev)
endif()
if(TARGET gradwire_any)
  install(TARGETS gradwire_any LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
endif()
if(TARGET gradwire_torch_c10d)
  install(TARGETS gradwire_torch_backend gradwire_torch_c10d LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire/python COMPONENT python)
endif()
if(TARGET gradwire_torch_cuda)
  install(TARGETS gradwire_torch_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire/python COMPONENT python)
endif()
if(TARGET gradwire_mpich_drop_in)
  install(TARGETS gradwire_mpich_drop_in LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpich)
endif()
if(TARGET gradwire_export_http)
  install(TARGETS gradwire_export_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT export)
endif()
if(TARGET gradwire_security_openssl)
  install(TARGETS gradwire_security_openssl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT security)
endif()
if(TARGET gradwire_nccl)
  install(TARGETS gradwire_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/replace/nccl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/replace
    COMPONENT dev)
endif()

# The documents are laid out as in the repository, so that links between them and to the examples work.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/cmake/NOTICES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  ${PROJECT_SOURCE_DIR}/ARCHITECTURE.md ${PROJECT_SOURCE_DIR}/CITATION.cff ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/SECURITY.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev PATTERN site EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python-free-examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev USE_SOURCE_PERMISSIONS)

# Documents link to headers, so beside them stands a symbolic link to the headers' folder.
file(RELATIVE_PATH headers ${CMAKE_INSTALL_FULL_DOCDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/links)
file(CREATE_LINK ${headers} ${PROJECT_BINARY_DIR}/generated/links/include SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/generated/links/include DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)

# docs/reference/compatibility.md states this policy: while the major version is 0, the C++ API may change with the minor one.
set(compatible_with SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatible_with SameMinorVersion)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradwireConfig.cmake.in ${PROJECT_BINARY_DIR}/gradwireConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY ${compatible_with})
install(FILES ${PROJECT_BINARY_DIR}/gradwireConfig.cmake ${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# The pkg-config files name no outside libraries: these are used as headers only, so even an archive needs no others.
# gradwire_pc_flags(VARIABLE PREFIX ITEM ...) puts PREFIX before each item, in quotes if it contains a blank. Without
# items there is no flag, since a lone -I would take the next flag for its folder. There are none if the compiler is
# MPI's wrapper, or finds MPI's header by itself.
function(gradwire_pc_flags variable prefix)
  set(flags "")
  foreach(item IN LISTS ARGN)
    if(item MATCHES "[ \t]")
      set(item "\"${item}\"")
    endif()
    string(APPEND flags " ${prefix}${item}")
  endforeach()
  set(${variable} "${flags}" PARENT_SCOPE)
endfunction()

# gradwire_install_pc(NAME) makes the file from cmake/NAME.pc.in. The prefix is found from the file's place, unless
# folders were given as absolute paths, which do not move.
function(gradwire_install_pc name)
  if(IS_ABSOLUTE ${pkgconfig_dir})
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  else()
    file(RELATIVE_PATH pc_prefix /prefix/${pkgconfig_dir} /prefix)
    string(PREPEND pc_prefix "\${pcfiledir}/")
  endif()
  string(REPLACE " " "\\ " pc_prefix "${pc_prefix}")  # pkgconf does this with ${pcfiledir} itself
  foreach(folder LIBDIR INCLUDEDIR)
    set(pc_${folder} "${CMAKE_INSTALL_${folder}}")
    if(NOT IS_ABSOLUTE "${pc_${folder}}")
      string(PREPEND pc_${folder} "\${prefix}/")
    endif()
    string(REPLACE " " "\\ " pc_${folder} "${pc_${folder}}")
  endforeach()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_dir} COMPONENT dev)
endfunction()
gradwire_install_pc(gradwire)
if(TARGET gradwire_mpi)
  gradwire_pc_flags(pc_mpi_cflags -I ${MPI_CXX_INCLUDE_DIRS})
  gradwire_pc_flags(pc_mpi_libs "" ${MPI_CXX_LIBRARIES})
  gradwire_install_pc(gradwire-mpi)
  gradwire_pc_flags(pc_mpi_c_cflags -I ${MPI_C_INCLUDE_DIRS})
  gradwire_pc_flags(pc_mpi_c_libs "" ${MPI_C_LIBRARIES})
  gradwire_install_pc(gradwire-c)
  if(TARGET gradwire_mpi_replace)
    gradwire_install_pc(gradwire-mpi-replace)
  endif()
endif()

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR} COMMENT "Removing what the last cmake --install of this folder installed" VERBATIM)
  include(GradwirePackage)
endif()
