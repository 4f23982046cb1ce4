// The names by which the two families of MPI are loaded: in a program's DT_NEEDED, and in a process.
#pragma once

#include <array>
#include <string_view>

namespace gradwire {

inline constexpr std::array<std::string_view, 2> kOpenMpiLibraries{"libmpi.so.40", "libmpi.so.20"};
/// Libraries with MPICH's ABI, among them Intel MPI's and Cray's; Debian names its MPICH library after the family.
inline constexpr std::array<std::string_view, 2> kMpichLibraries{"libmpich.so.12", "libmpi.so.12"};

}  // namespace gradwire
