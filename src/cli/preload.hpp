// Finds the libraries that are preloaded into jobs, and programs that the tool starts, relative to its own folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::cli {

/// A message layer of jobs, for which there is a drop-in.
enum class Library { open_mpi, mpich, nccl };
[[nodiscard]] std::string_view to_string(Library library) noexcept;
[[nodiscard]] std::string preload_name(Library library);  // "libgradwire_mpi.so"
/// Finds the drop-in for the MPI of each process, and does nothing in one without MPI.
inline constexpr const char* kAnyPreload = "libgradwire_any.so";

/// This program's file. Error(unsupported) where neither /proc nor the kernel tells it.
[[nodiscard]] std::filesystem::path this_program(const std::filesystem::path& link = "/proc/self/exe");
/// The folders that are searched, for messages.
[[nodiscard]] std::vector<std::filesystem::path> preload_folders(const std::filesystem::path& program);
/// The absolute path of the library of this name, or nothing where it was not built.
[[nodiscard]] std::optional<std::filesystem::path> find_preload(const std::filesystem::path& program,
                                                                const std::string& name);

/// The absolute path of a program that only this tool starts, such as gradwire-doctor: in the folder of helpers of an
/// installation or of a build. Where it is in neither, the place in an installation, for messages.
[[nodiscard]] std::filesystem::path find_helper(const std::filesystem::path& program, const std::string& name);

}  // namespace gradwire::cli
