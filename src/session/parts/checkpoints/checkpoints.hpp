// What a session knows about the files of its save(), checkpoint() and restore(), as a part of the session.
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

/// Only calls that save or restore use it, between steps.
class Checkpoints final : public Part {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "checkpoints"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  /// Takes over all but the known files of save(): in the next world, ranks have other names for them.
  void take_over(Part& before) override;

  /// Writes this rank's file of save().
  void save_to(const std::filesystem::path& directory, const SavedState& state);
  /// Notes that load() has read the files of `step` in `directory`.
  void loaded_from(const std::filesystem::path& directory, std::uint64_t step) { known_ = {directory, step}; }

  /// Throws Error(invalid_argument) if `directory` holds a checkpoint of a step after `step`.
  void enter(const std::filesystem::path& directory, std::uint64_t step);
  /// Writes a checkpoint, on a thread of its own, to the directory that enter() was last called with.
  void write(SavedState state, std::span<const ConstView> parameters, int keep);
  /// Waits for the last write(); get() also throws its error, once.
  void wait();
  void get();
  /// Returns the write that is under way, or the last one. The last owner of this future waits for its end.
  [[nodiscard]] const std::shared_future<void>& writing() const noexcept { return writing_; }
  /// Notes that the session continues from the checkpoint `name` in `directory`, where no checkpoint of a later step is
  /// left. An empty name means no checkpoint.
  void restored_from(const std::filesystem::path& directory, std::string name);

 private:
  std::optional<KnownFiles> known_;
  std::filesystem::path directory_;   // of checkpoints; has none of a later step
  std::string restored_;              // the checkpoint in directory_ that this session continues from
  std::shared_future<void> writing_;  // the last checkpoint; the session waits for it when it ends
};

[[nodiscard]] std::unique_ptr<Part> make_checkpoints(const PartInputs& inputs);

}  // namespace gradwire::session
