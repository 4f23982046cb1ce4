# Writes OUTPUT, a header with the revision of the sources, at every build and only when it changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --tags
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT revision)
  set(revision "unknown")
endif()
set(text "#pragma once\nnamespace gradwire::bench {\ninline constexpr const char* kRevision = \"${revision}\";\n}  // namespace gradwire::bench\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
