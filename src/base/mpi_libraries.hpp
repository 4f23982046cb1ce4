// By which names the two families of MPI are loaded: what a program's DT_NEEDED says, and what a process has.
#pragma once

#include <array>
#include <string_view>

namespace gradwire {

inline constexpr std::array<std::string_view, 2> kOpenMpiLibraries{"libmpi.so.40", "libmpi.so.20"};
/// MPICH's ABI has Intel MPI's and Cray's too; Debian names its MPICH's library by the family.
inline constexpr std::array<std::string_view, 2> kMpichLibraries{"libmpich.so.12", "libmpi.so.12"};

}  // namespace gradwire
