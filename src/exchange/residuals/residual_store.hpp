// Where error feedback keeps what encoding dropped: fp32, by tensor and encode site, never by bucket, so that residuals
// survive another bucket layout, codec, collective or world size. Stays empty while nothing needs error feedback.
// A store that can undo has a second buffer for what a step writes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "codec/codec.hpp"

namespace gradwire::exchange {

struct ResidualKey {
  std::uint32_t tensor = 0;  // order of add
  codec::EncodeSite site = codec::EncodeSite::none;
  friend auto operator<=>(const ResidualKey&, const ResidualKey&) = default;  // NOLINT(modernize-use-nullptr): false
};

class ResidualStore {
 public:
  /// Consecutive elements of a tensor.
  struct Range {
    std::uint64_t offset = 0;
    std::vector<float> values;
    [[nodiscard]] std::uint64_t end() const noexcept { return offset + values.size(); }
  };

  /// Makes sure that one range covers elements [offset, offset + count) of the tensor at this site: all of it at
  /// `local`, the owned part at `owner`, what is summed for another node at `intra`. Zero where nothing was kept; what
  /// other ranges held of it moves there.
  void keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  /// Adds what another store held, as after a change of world size.
  void add(const ResidualKey& key, std::uint64_t offset, const std::vector<float>& values, float factor);
  /// Residuals of elements [offset, offset + count), owned by the store; null where they are not kept, or not all.
  [[nodiscard]] float* slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  /// What an encoder leaves of these elements, all of which slice() must give; once in a step. Where the store can
  /// undo, slice() shows it after commit().
  void write(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, const float* values);
  /// Whether any residual of these elements is not zero.
  [[nodiscard]] bool holds(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const;
  /// How much a residual counts; each factor rounds once.
  struct Worth {
    float decay = 1;
    double factor = 1;
  };
  /// values += factor x (decay x residual) for elements [offset, offset + count), whose residual is zero afterwards.
  void fold(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, Worth worth, codec::Working type,
            void* values);
  /// Forgets everything of a key.
  void drop(const ResidualKey& key);
  /// All residuals times `factor`. Between steps.
  void multiply(float factor);

  /// From here on undo() brings back what is held now, or was at the last commit().
  void remember() { undo_.emplace(); }
  void commit() noexcept;
  /// What is written of a tensor is read again before the next commit().
  void copy_before_changes(std::uint32_t tensor);
  void undo();
  [[nodiscard]] bool can_undo() const noexcept { return undo_.has_value(); }

  // Owner residuals may lie with ranks that no longer own their elements, as after loading another world's state.
  void mark_moved(std::uint32_t tensor) { moved_.insert(tensor); }
  void clear_moved(std::uint32_t tensor);
  [[nodiscard]] bool moved(std::uint32_t tensor) const { return moved_.contains(tensor); }

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] bool has(const ResidualKey& key) const { return ranges_.contains(key); }
  [[nodiscard]] const std::map<ResidualKey, std::vector<Range>>& entries() const noexcept { return ranges_; }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Elements {
    std::uint64_t begin = 0;  // in a range
    std::uint64_t end = 0;
    friend bool operator==(const Elements&, const Elements&) = default;
  };
  // The second buffer of a range: write() writes here, and commit() swaps.
  struct Next {
    std::vector<float> values;      // empty until the range is written to for the first time
    std::vector<Elements> written;  // in this step
    std::vector<Elements> differs;  // from the range, but for what is written
  };
  struct Undo {
    std::map<ResidualKey, std::vector<Next>> next;                      // one for each range of a key
    std::map<ResidualKey, std::optional<std::vector<Range>>> reshaped;  // before the step; none: was not there
    std::optional<std::set<std::uint32_t>> moved;
  };

  [[nodiscard]] float* next_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  void note_change(const ResidualKey& key);  // whatever comes in this step changes the key in place

  std::map<ResidualKey, std::vector<Range>> ranges_;  // ranges of a key do not overlap
  std::set<std::uint32_t> moved_;
  std::optional<Undo> undo_;
};

}  // namespace gradwire::exchange
