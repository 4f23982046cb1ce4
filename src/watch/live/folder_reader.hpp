// The files and sockets of a folder as a snapshot.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {

/// Parses a file again only if it changed, and asks the process at each socket.
class FolderReader {
 public:
  explicit FolderReader(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Never fails: files that cannot be read are in the snapshot, with the reason.
  [[nodiscard]] FolderSnapshot read();
  /// The reason why no file of a rank lies in the folder, and what to do.
  [[nodiscard]] std::string explain_empty_folder() const;

 private:
  struct Known {
    std::filesystem::file_time_type written;
    RankValues values;
    std::string reason;  // why it is skipped; empty: it is not skipped
  };
  /// Adds the ranks that answer at a socket.
  void ask(const std::string& name, FolderSnapshot& snapshot) const;
  /// Removes ranks that an earlier, larger job left in the folder.
  static void leave_out_earlier(FolderSnapshot& snapshot);
  [[nodiscard]] Known read_one(const std::filesystem::path& file) const;

  std::filesystem::path folder_;
  std::map<std::string, Known> known_;  // by name
};

}  // namespace gradwire::watch::live
