// The PTX that nvcc embedded into a program, found as the program registers it.
#pragma once

#include "tests/support/ptx/module.hpp"

namespace gradwire::ptx {

/// Reads the PTX in what nvcc registers, a __fatBinC_Wrapper_t. Ends the process where there is none, or it is
/// compressed.
void** register_binary(const void* wrapper);
void register_kernel(void** binary, const void* host, const char* name);
/// Returns the kernel of a host function, decoded. Throws Finding.
Kernel& registered_kernel(const void* host);

}  // namespace gradwire::ptx
