// Records the gradients of some steps of one rank in a folder, as record/gradient_folder.hpp describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/dtype.hpp"

namespace gradwire::record {

class Recorder {
 public:
  /// Makes the folder, which stays the same if the program changes its directory later. Error(invalid_argument) names
  /// it where that fails, or where it holds recorded gradients already, which must not mix with others.
  Recorder(const std::filesystem::path& folder, int rank, int ranks);

  /// Writes one gradient; of one that was written in this step before, the later one stays. Error(invalid_argument)
  /// names the file that cannot be written.
  void add(std::uint64_t step, std::string_view name, ConstView values);
  /// Writes the index of all gradients so far, in the order in which they were added. A job that ends early leaves what
  /// was written up to here. To be called once per step: each call writes the whole index, which is little beside the
  /// gradients of the 512 steps that are recorded at most. Error(invalid_argument) where the index would be larger than
  /// list_gradients() reads; the previous one stays.
  void write_index() const;

  [[nodiscard]] std::size_t gradients() const noexcept { return written_.size(); }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  [[nodiscard]] const std::string& file_of(std::string_view name);

  struct Written {
    std::string name;
    std::uint64_t step = 0;
    std::string file;
    DType dtype = DType::f32;
    std::uint64_t count = 0;
  };
  std::filesystem::path folder_;  // absolute
  int rank_;
  int ranks_;
  std::optional<std::uint64_t> made_;                                   // the latest step whose folder was made
  std::map<std::string, std::string, std::less<>> files_;               // by tensor; without a folder
  std::set<std::string> taken_;                                         // the names of files in `files_`
  std::vector<Written> written_;                                        // in the order in which they were added first
  std::map<std::pair<std::uint64_t, std::string>, std::size_t> index_;  // by step and tensor: where in `written_`
};

/// Throws as the constructor of Recorder does, and leaves nothing behind.
void check_recording_folder(const std::filesystem::path& folder);

/// A name for a file: letters, digits, '.', '-' and '_' of the tensor's name stay, '_' replaces others; at most 100
/// bytes, and none that begins with a dot.
[[nodiscard]] std::string safe_file_name(std::string_view name);

}  // namespace gradwire::record
