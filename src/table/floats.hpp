// Rows on their way between the caller, messages and the store.
#pragma once

#include "memory/pool_allocator.hpp"

namespace gradwire::table {

using Floats = memory::PooledVector<float, memory::MemoryUse::tables>;

}  // namespace gradwire::table
