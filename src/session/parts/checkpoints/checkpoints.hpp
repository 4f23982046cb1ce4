// What a session knows of the files of its save(), checkpoint() and restore(), as a part of it.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "session/part/part.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::session {

/// Only these calls use it, between steps.
class Checkpoints final : public Part {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "checkpoints"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  /// In the next world other ranks have other names for the files of save().
  void take_over(Part& before) override;

  /// Writes this rank's file of save().
  void save_to(const std::filesystem::path& directory, const SavedState& state);
  /// load() has read the files of `step` in `directory`.
  void loaded_from(const std::filesystem::path& directory, std::uint64_t step) { known_ = {directory, step}; }

  /// Error(invalid_argument) if `directory` holds a checkpoint of a step after `step`.
  void enter(const std::filesystem::path& directory, std::uint64_t step);
  /// Writes a checkpoint to the directory that enter() was last called with, by a thread of its own.
  void write(SavedState state, std::span<const ConstView> parameters, int keep);
  /// Waits for the last write(); `get` throws what went wrong with it, once.
  void wait();
  void get();
  /// The write that is under way, or was last. Whoever holds it last waits for its end.
  [[nodiscard]] const std::shared_future<void>& writing() const noexcept { return writing_; }
  /// The session goes on from the checkpoint `name` in `directory`, where none of a later step is left. Empty: from
  /// none.
  void restored_from(const std::filesystem::path& directory, std::string name);

 private:
  std::optional<KnownFiles> known_;
  std::filesystem::path directory_;   // of checkpoints; known to hold none of a later step
  std::string restored_;              // the checkpoint in it that this session continues from
  std::shared_future<void> writing_;  // the last checkpoint; the session waits for it when it ends
};

[[nodiscard]] std::unique_ptr<Part> make_checkpoints(const PartInputs& inputs);

}  // namespace gradwire::session
