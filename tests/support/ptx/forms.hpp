// The tables of instructions, one function for each file that has some.
#pragma once

#include <string>
#include <unordered_map>

#include "tests/support/ptx/shadow.hpp"

namespace gradwire::ptx {

void add_conversions(std::unordered_map<std::string, Operation>& table);  // conversions.cpp
void add_flow(std::unordered_map<std::string, Operation>& table);         // warp_forms.cpp

// These order accesses; they are in ordering.cpp. acquire() comes before a load is noted, publication_of() behind a
// store.
Viewer viewer_of(const Warp& warp, std::uint32_t lane, Scope scope);
void acquire(Warp& warp, std::uint32_t lane, const MemoryForm& form, std::uint64_t address);
std::optional<Publication> publication_of(Warp& warp, std::uint32_t lane, const MemoryForm& form);
void order_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes);
void fence(Warp& warp, const Instruction& instruction, std::uint32_t lanes);

}  // namespace gradwire::ptx
