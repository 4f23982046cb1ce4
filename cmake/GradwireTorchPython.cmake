# Sets found and GRADWIRE_TORCH_PYTHON_<INTERPRETER, VERSION, INCLUDE_DIRS, LIBRARY_DIRS, SUFFIX>. The question takes
# seconds, so the answer is kept until GRADWIRE_PYTHON changes.
set(question [[
import os, sysconfig, torch, torch.distributed
from torch.utils.cpp_extension import include_paths, library_paths
headers = include_paths() + [sysconfig.get_path("include")]
assert torch.distributed.is_gloo_available() and os.path.exists(os.path.join(headers[-1], "Python.h"))
print("|".join([torch.__version__, ";".join(headers), ";".join(library_paths()),
                sysconfig.get_config_var("EXT_SUFFIX"), str(int(torch._C._GLIBCXX_USE_CXX11_ABI))]))
]])
set(candidates python3 /usr/bin/python3)
if(GRADWIRE_PYTHON)
  set(candidates ${GRADWIRE_PYTHON})
endif()
if(NOT GRADWIRE_TORCH_PYTHON_ANSWER OR NOT "${candidates}" STREQUAL "${GRADWIRE_TORCH_PYTHON_ASKED}")
  unset(GRADWIRE_TORCH_PYTHON_ANSWER CACHE)
  foreach(library torch_python torch torch_cpu c10)
    unset(GRADWIRE_TORCH_PYTHON_${library} CACHE)
  endforeach()
  foreach(candidate IN LISTS candidates)
    execute_process(COMMAND ${candidate} -c "${question}" OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE code
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0)
      set(GRADWIRE_TORCH_PYTHON_ANSWER "${candidate}|${answer}" CACHE INTERNAL "")
      set(GRADWIRE_TORCH_PYTHON_ASKED "${candidates}" CACHE INTERNAL "")
      break()
    endif()
  endforeach()
endif()
if(GRADWIRE_TORCH_PYTHON_ANSWER)
  string(REGEX MATCH "^([^|]*)[|]([^|]*)[|]([^|]*)[|]([^|]*)[|]([^|]*)[|]([01])$" matched "${GRADWIRE_TORCH_PYTHON_ANSWER}")
  set(GRADWIRE_TORCH_PYTHON_INTERPRETER "${CMAKE_MATCH_1}")
  set(GRADWIRE_TORCH_PYTHON_VERSION "${CMAKE_MATCH_2}")
  set(GRADWIRE_TORCH_PYTHON_INCLUDE_DIRS "${CMAKE_MATCH_3}")
  set(GRADWIRE_TORCH_PYTHON_LIBRARY_DIRS "${CMAKE_MATCH_4}")
  set(GRADWIRE_TORCH_PYTHON_SUFFIX "${CMAKE_MATCH_5}")
  set(abi "${CMAKE_MATCH_6}")
  find_path(GRADWIRE_PYBIND11_DIR pybind11/pybind11.h HINTS ${GRADWIRE_TORCH_PYTHON_INCLUDE_DIRS})
  if(matched AND abi STREQUAL "1" AND GRADWIRE_PYBIND11_DIR)
    set(found ON)
  endif()
endif()
