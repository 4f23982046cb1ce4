# Defines one function for each kind of target, so that flags are set in one place.

# Flags of every gradwire target. -Wrestrict has false positives in g++ 12 (std::string). No contraction into FMA: it would change codec bytes between compilers and machines.
add_library(gradwire_flags INTERFACE)
target_compile_options(gradwire_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wno-psabi
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>
  $<$<AND:$<BOOL:${GRADWIRE_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>
  # The optimiser's warnings depend on what it inlined, and even on the length of paths: they are shown, but are no
  # errors.
  $<$<AND:$<BOOL:${GRADWIRE_WERROR}>,$<CXX_COMPILER_ID:GNU>,$<COMPILE_LANGUAGE:CXX>>:-Wno-error=array-bounds -Wno-error=stringop-overflow
    -Wno-error=stringop-overread -Wno-error=free-nonheap-object -Wno-error=maybe-uninitialized>)
if(GRADWIRE_SANITIZE)
  target_compile_options(gradwire_flags INTERFACE -fsanitize=${GRADWIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # g++ 12 cannot inline some functions of xxhash's streaming hash that are marked to be inlined always.
  target_compile_definitions(gradwire_flags INTERFACE XXH_NO_INLINE_HINTS=1)
  target_link_options(gradwire_flags INTERFACE -fsanitize=${GRADWIRE_SANITIZE})
endif()
target_include_directories(gradwire_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

# gradwire_module(NAME SOURCES ... DEPENDS ... [LIBRARIES ...]) adds the static library gradwire_<NAME>, one layer.
# LIBRARIES are outside libraries that are used only inside. Without SOURCES it is an interface target.
function(gradwire_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  if(arg_SOURCES)
    add_library(gradwire_${name} STATIC ${arg_SOURCES})
    target_link_libraries(gradwire_${name} PRIVATE $<BUILD_INTERFACE:gradwire_flags> ${arg_LIBRARIES} Threads::Threads)
    target_include_directories(gradwire_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
    set(scope PUBLIC)
    set_property(GLOBAL APPEND PROPERTY GRADWIRE_MODULES gradwire_${name})
  else()
    add_library(gradwire_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  foreach(module IN LISTS arg_DEPENDS)
    target_link_libraries(gradwire_${name} ${scope} gradwire_${module})
  endforeach()
endfunction()

# gradwire_program(NAME SOURCES ... LIBRARIES ...) adds an executable in bin/.
function(gradwire_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} gradwire_flags Threads::Threads)
endfunction()

# gradwire_compile_fast(NAME): code that computes little is compiled for a fast build, not for a fast program.
function(gradwire_compile_fast name)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# Bodies of tests compute little: UBSan watches the library; ASan also needs the buffers of tests. It comes after
# gradwire_flags.
add_library(gradwire_test_body INTERFACE)
if(GRADWIRE_SANITIZE MATCHES "undefined")
  target_compile_options(gradwire_test_body INTERFACE -fno-sanitize=undefined)
endif()

# gradwire_test_flags(NAME COMPUTES) sets how test bodies are compiled. They take most of a build if they are optimised
# like the library; COMPUTES is ON if the body itself computes for seconds, often by codec cores in headers. It is then
# compiled like all that tests need (tests/CMakeLists.txt).
function(gradwire_test_flags name computes)
  target_compile_definitions(${name} PRIVATE GRADWIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(GRADWIRE_SANITIZE)
    target_compile_definitions(${name} PRIVATE GRADWIRE_SANITIZED)
  endif()
  if(computes)
    return()
  endif()
  target_link_libraries(${name} PRIVATE gradwire_test_body)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O0)
  endif()
endfunction()

# gradwire_skipped_test(NAME LABELS WHY) adds an entry that ctest reports as skipped and that prints why, instead of tests
# for which something is missing here.
function(gradwire_skipped_test name labels why)
  add_test(NAME ${name} COMMAND sh -c "echo 'skipped: ${why}'; exit 77")
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 77)
endfunction()

# gradwire_test(NAME SOURCES ... LIBRARIES ... [LABELS ...] [COMPUTES] [ONE_THREAD] [ONE_THREAD_SOURCES ...] [TIMEOUT s]
#   [MPI_RANKS n ...] [ARGUMENTS ...] [PARTS name=filter ...])
# adds a GoogleTest program and its ctest entries. MPI_RANKS runs it under mpirun once for each world size instead of
# plainly. ONE_THREAD says that the program has no second thread, so ThreadSanitizer has nothing to check;
# ONE_THREAD_SOURCES says so of these files. PARTS makes the cases of a filter a ctest entry of their own, and NAME runs the
# rest: one program compiles faster than several.
function(gradwire_test name)
  cmake_parse_arguments(arg "NO_GTEST_MAIN;COMPUTES;ONE_THREAD" "TIMEOUT" "SOURCES;ONE_THREAD_SOURCES;LIBRARIES;LABELS;MPI_RANKS;ARGUMENTS;PARTS" ${ARGN})
  if(NOT GRADWIRE_SANITIZE STREQUAL "thread")
    list(APPEND arg_SOURCES ${arg_ONE_THREAD_SOURCES})
  elseif(arg_ONE_THREAD)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(GRADWIRE_SANITIZE)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")  # up to 15 times slower, on a machine that may be shared
  endif()
  gradwire_program(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES} gradwire_test_common GTest::gtest GTest::gmock)
  if(NOT arg_NO_GTEST_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  set(computes OFF)
  if(arg_COMPUTES)
    set(computes ON)
  endif()
  gradwire_test_flags(${name} ${computes})
  if(NOT gradwire::torch IN_LIST arg_LIBRARIES)  # its definitions change the headers
    target_precompile_headers(${name} REUSE_FROM gradwire_test_headers_${computes})
  endif()
  foreach(label IN LISTS arg_LABELS)  # tests_LABEL builds the programs of a label
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
  set(tests "")
  if(arg_MPI_RANKS)
    foreach(ranks IN LISTS arg_MPI_RANKS)
      add_test(NAME ${name}_np${ranks}
        COMMAND ${PROJECT_SOURCE_DIR}/tests/support/mpi_run ${MPIEXEC_EXECUTABLE} ${ranks} $<TARGET_FILE:${name}> ${arg_ARGUMENTS})
      list(APPEND tests ${name}_np${ranks})
    endforeach()
    set_tests_properties(${tests} PROPERTIES PROCESSORS 2)
  else()
    add_test(NAME ${name} COMMAND ${name} ${arg_ARGUMENTS})
    set(tests ${name})
    set(filters "")
    foreach(part IN LISTS arg_PARTS)
      string(REGEX MATCH "^([^=]+)=(.+)$" matched "${part}")
      set(filter "${CMAKE_MATCH_2}")
      add_test(NAME ${CMAKE_MATCH_1} COMMAND ${name} ${arg_ARGUMENTS})
      set_tests_properties(${CMAKE_MATCH_1} PROPERTIES ENVIRONMENT "GTEST_FILTER=${filter}")
      list(APPEND tests ${CMAKE_MATCH_1})
      list(APPEND filters "${filter}")
    endforeach()
    if(filters)
      list(JOIN filters ":" filters)
      set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=-${filters}")
    endif()
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
