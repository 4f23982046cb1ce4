// Reads how the kernel treats memory of this process (/proc/self/smaps).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace gradwire::test {

/// Returns the flags of the mapping that contains the address, such as "dd": not dumped, and "lo": locked.
inline std::set<std::string> mapping_flags(const std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= address && address < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      std::istringstream words(line.substr(8));
      return {std::istream_iterator<std::string>(words), {}};
    }
  }
  return {};
}

}  // namespace gradwire::test
