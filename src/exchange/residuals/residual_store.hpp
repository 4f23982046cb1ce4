// The store of residuals for error feedback: by tensor and encode site, never by bucket, so that residuals survive
// another bucket layout, codec, collective or world size. Each tensor's are f32, or narrower as its form says. It stays
// empty while nothing needs error feedback. A store that can undo a step has a second buffer, to which the step writes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/residuals/residual_values.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::exchange {

struct ResidualKey {
  std::uint32_t tensor = 0;  // order of add
  codec::EncodeSite site = codec::EncodeSite::none;
  friend auto operator<=>(const ResidualKey&, const ResidualKey&) = default;  // NOLINT(modernize-use-nullptr): false
};

/// Names a folder whose scratch file holds the residuals beyond `memory` bytes.
struct ResidualPlace {
  std::string folder;
  std::uint64_t memory = 0;
  friend auto operator<=>(const ResidualPlace&,
                          const ResidualPlace&) = default;  // NOLINT(modernize-use-nullptr): false
};

/// Says how a store keeps residuals.
struct ResidualForm {
  static constexpr std::uint32_t kSeed = 0x67726164;

  std::vector<ResidualDType> dtypes = {};                 // by tensor; f32 for tensors that it does not have
  std::uint32_t seed = kSeed;                             // of the stochastic rounding of values that are no f32
  std::uint32_t rank = 0;                                 // whose residuals these are
  std::vector<std::optional<ResidualPlace>> places = {};  // by tensor; none, also for other tensors: in memory

  [[nodiscard]] ResidualDType dtype_of(std::uint32_t tensor) const noexcept {
    return tensor < dtypes.size() ? dtypes[tensor] : ResidualDType::f32;
  }
  [[nodiscard]] const ResidualPlace* place_of(std::uint32_t tensor) const noexcept {
    return tensor < places.size() && places[tensor] ? &*places[tensor] : nullptr;
  }
  friend bool operator==(const ResidualForm&, const ResidualForm&) = default;
};

class ResidualStore {
 public:
  using Values = ResidualValues;

  ResidualStore() = default;
  explicit ResidualStore(ResidualForm form) : form_(std::move(form)) {}
  /// Returns an empty store of another form. The two share files, and their budgets of memory, where they name the same
  /// places; this one makes all files of `form` for that, and keeps them until set_form().
  [[nodiscard]] ResidualStore empty_beside(ResidualForm form);

  /// Consecutive elements of a tensor.
  struct Range {
    std::uint64_t offset = 0;
    Values values;
    [[nodiscard]] std::uint64_t end() const noexcept { return offset + values.size(); }
  };

  /// Makes sure that one range covers elements [offset, offset + count) of the tensor at this site: all of it at
  /// `local`, the owned part at `owner`, the part summed for another node at `intra`. It is zero where nothing was
  /// kept; residuals that other ranges held of these elements move there. `position` is where the first element lies in
  /// its bucket: there, blocks of int8 begin at multiples of kResidualBlock. Without one any blocks serve.
  void keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count,
            std::optional<std::uint64_t> position = std::nullopt);
  /// Adds residuals that another store held, for example after a change of world size. Their dtype need not be the one
  /// of this store.
  void add(const ResidualKey& key, std::uint64_t offset, const Values& values, float factor);
  /// Returns residuals of elements [offset, offset + count) as f32: in place, or written to `scratch`, which holds
  /// `count`. Null unless all of them are kept.
  [[nodiscard]] const float* load(const ResidualKey& key, std::uint64_t offset, std::uint64_t count,
                                  float* scratch) const;
  /// Does the same for residuals that the caller changes in place. It returns null, too, where the store does not keep
  /// them as f32 in memory.
  [[nodiscard]] float* slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  /// Writes the residuals that an encoder leaves of these elements in step `step`, all of which the store must keep;
  /// once in a step. Where the store can undo, load() shows them only after commit(). A step that is made again rounds
  /// the same values to the same bits.
  void write(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, const float* values,
             std::uint64_t step = 0);
  /// Whether any residual of these elements is not zero.
  [[nodiscard]] bool holds(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const;
  /// The factors that a residual is multiplied by; each rounds once.
  struct Worth {
    float decay = 1;
    double factor = 1;
  };
  /// values += factor x (decay x residual) for elements [offset, offset + count), whose residual is zero afterwards.
  void fold(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, Worth worth, codec::Working type,
            void* values);
  /// Drops all residuals of a key.
  void drop(const ResidualKey& key);
  /// Multiplies all residuals by `factor`. To be called between steps.
  void multiply(float factor);
  /// Keeps residuals in another form from now on, and changes those that it has. To be called between steps.
  void set_form(ResidualForm form);
  [[nodiscard]] const ResidualForm& form() const noexcept { return form_; }
  /// Makes the scratch file of a place, if there is none yet, with room for so many bytes of residuals. Errors are
  /// those of memory::PageFile.
  void reserve(const ResidualPlace& place, std::uint64_t bytes);
  /// Takes room in the files for a copy of all residuals that lie there.
  void reserve_copy();
  /// Returns the place of a tensor's residuals, whose file is made if there is none yet; null: memory.
  [[nodiscard]] ResidualValues::Spill spill_of(std::uint32_t tensor);

  /// From here on undo() restores the residuals of this moment, or of the last commit().
  void remember();
  /// Does the part of commit() that may fail: copies values where a step writes other elements than the one before.
  /// undo() still restores what it would have. Errors are those of memory::PageFile.
  void prepare_commit();
  /// Makes the changes final. It does not fail after a prepare_commit() with no change in between.
  void commit();
  /// Copies a tensor's residuals before they change, for a step that reads what it wrote before the next commit().
  void copy_before_changes(std::uint32_t tensor);
  void undo();
  [[nodiscard]] bool can_undo() const noexcept { return undo_.has_value(); }

  // Ranks may hold owner residuals of elements that they no longer own, for example after loading another world's
  // state.
  void mark_moved(std::uint32_t tensor) { moved_.insert(tensor); }
  void clear_moved(std::uint32_t tensor);
  [[nodiscard]] bool moved(std::uint32_t tensor) const { return moved_.contains(tensor); }

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] bool has(const ResidualKey& key) const { return ranges_.contains(key); }
  [[nodiscard]] const std::map<ResidualKey, std::vector<Range>>& entries() const noexcept { return ranges_; }
  /// Takes all residuals out, for another store. Undo finds none afterwards either.
  [[nodiscard]] std::map<ResidualKey, std::vector<Range>> take_entries();
  /// Returns the bytes of the residuals, in memory and in files.
  [[nodiscard]] std::uint64_t bytes() const;
  /// Returns the same for the second buffers.
  [[nodiscard]] std::uint64_t second_bytes() const;
  /// Returns the bytes of residuals and second buffers that lie in memory.
  [[nodiscard]] std::uint64_t resident_bytes() const;
  /// Returns the memory of all residuals and second buffers, which the pool may move between steps; without those that
  /// lie partly in a file.
  [[nodiscard]] std::vector<memory::Block*> blocks();

 private:
  struct Elements {
    std::uint64_t begin = 0;  // offset in a range
    std::uint64_t end = 0;
    friend bool operator==(const Elements&, const Elements&) = default;
  };
  // The second buffer of a range: write() writes here, and commit() swaps.
  struct Next {
    Values values;                  // empty until the range is written to for the first time
    std::vector<Elements> written;  // elements written in this step
    std::vector<Elements> differs;  // elements that differ from the range's, apart from those in `written`
  };
  struct Undo {
    std::map<ResidualKey, std::vector<Next>> next;                      // one for each range of a key
    std::map<ResidualKey, std::optional<std::vector<Range>>> reshaped;  // ranges before the step; none: there were none
    std::optional<std::set<std::uint32_t>> moved;
    std::uint64_t changes = 0;
  };

  [[nodiscard]] const ResidualValues::Spill& spill_at(const ResidualPlace& place);
  // The range that holds all of these elements; null if none does.
  [[nodiscard]] const Range* range_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const;
  [[nodiscard]] Range* range_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  // The second buffer for elements that are about to be written.
  [[nodiscard]] Next& next_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  void note_change(const ResidualKey& key);  // later changes of this step are made in place
  // The same for values whose blocks change between steps.
  [[nodiscard]] ResidualRounding rounding_of_blocks(const ResidualKey& key, const Values& values);
  [[nodiscard]] ResidualRounding rounding(const ResidualKey& key, ResidualRounding::Use use,
                                          std::uint64_t number) const noexcept {
    return {form_.seed, form_.rank, key.tensor, key.site, use, number};
  }

  void count_change_between_steps() {
    ++changes_;
    if (undo_) {
      undo_->changes = changes_;
    }
  }

  ResidualForm form_;
  std::uint64_t changes_ = 0;  // that add(), multiply() and set_form() made, so that each has its own random bits
  std::map<ResidualKey, std::vector<Range>> ranges_;  // ranges of a key do not overlap
  std::set<std::uint32_t> moved_;
  std::optional<Undo> undo_;
  std::map<ResidualPlace, ResidualValues::Spill> spills_;
};

}  // namespace gradwire::exchange
