# cmake --install: the tool, libraries, public headers, the CMake package (one export set a component) and pkg-config files.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# gradwire_install_component(COMPONENT TARGET): COMPONENT is the name of the export set and of find_package's component.
function(gradwire_install_component component target)
  install(TARGETS ${target} EXPORT gradwire-${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT gradwire-${component} NAMESPACE gradwire:: DESTINATION ${package_dir})
endfunction()

if(TARGET gradwire_tool)
  install(TARGETS gradwire_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET gradwire_link)
    install(TARGETS gradwire_link RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endif()

set(headers_left_out REGEX "/(mpi|mpi_transport|torch|cuda|nccl)\\.hpp$" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp" ${headers_left_out})
gradwire_install_component(core gradwire)
foreach(component mpi torch)
  if(TARGET gradwire_${component})
    gradwire_install_component(${component} gradwire_${component})
    install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/${component}.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
  endif()
endforeach()

foreach(component cuda nccl)
  if(TARGET gradwire_over_${component})
    gradwire_install_component(${component} gradwire_over_${component})
    install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/${component}.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
  endif()
endforeach()

if(TARGET gradwire_mpi)
  install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/mpi_transport.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
endif()

if(TARGET gradwire_c)
  gradwire_install_component(c gradwire_c)
  foreach(header gradwire tables mpi)
    install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
  endforeach()
endif()

# The drop-ins: shared objects for LD_PRELOAD, and the header that takes the place of <mpi.h>.
if(TARGET gradwire_mpi_drop_in)
  install(TARGETS gradwire_mpi_drop_in gradwire_mpi_replace EXPORT gradwire-mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/replace/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/replace)
endif()
if(TARGET gradwire_torch_c10d)
  install(TARGETS gradwire_torch_c10d LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire/python)
endif()
if(TARGET gradwire_mpich_drop_in)
  install(TARGETS gradwire_mpich_drop_in LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradwireConfig.cmake.in ${PROJECT_BINARY_DIR}/gradwireConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradwireConfig.cmake ${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake
  DESTINATION ${package_dir})

# pkg-config. Outside libraries are used as headers only, so even an archive needs no others.
# gradwire_install_pc(NAME): from cmake/NAME.pc.in; the prefix is found from where the file lies.
function(gradwire_install_pc name)
  file(RELATIVE_PATH pc_prefix_from_file /prefix/${pkgconfig_dir} /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_dir})
endfunction()
gradwire_install_pc(gradwire)
if(TARGET gradwire_mpi)
  list(JOIN MPI_CXX_INCLUDE_DIRS " -I" pc_mpi_cflags)
  list(JOIN MPI_CXX_LIBRARIES " " pc_mpi_libs)
  gradwire_install_pc(gradwire-mpi)
  list(JOIN MPI_C_INCLUDE_DIRS " -I" pc_mpi_c_cflags)
  list(JOIN MPI_C_LIBRARIES " " pc_mpi_c_libs)
  gradwire_install_pc(gradwire-c)
endif()
