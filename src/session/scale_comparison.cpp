#include "session/scale_comparison.hpp"

#include <string>

#include "gradwire/error.hpp"
#include "session/peers.hpp"

namespace gradwire::session {
namespace {

// As much of a hash as a double holds.
double number_of(std::span<const float> scale) {
  constexpr int kLeftOut = 12;
  return static_cast<double>(hash_of(scale.data(), scale.size_bytes(), 0) >> kLeftOut);
}

}  // namespace

void ScaleComparison::append(std::vector<double>& numbers) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_.scale(i).empty()) {
      numbers.push_back(number_of(tensors_.scale(i)));
    }
  }
}

void ScaleComparison::take(const Compared& compared) {
  next_ = compared.step + kEvery;
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_.scale(i).empty()) {
      continue;
    }
    std::string different;
    for (std::size_t rank = 1; rank < compared.ranks.size(); ++rank) {
      if (compared.ranks[rank][at] != compared.ranks[0][at]) {
        different += (different.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    if (!different.empty()) {
      throw Error(ErrorCode::mismatch, "the scale of \"" + tensors_.name(i) + "\" in step " +
                                           std::to_string(compared.step) + " differs from rank 0's on rank(s) " +
                                           different +
                                           ", and so do results; make it of what all ranks hold alike, as " +
                                           "the optimizer's state is, and change it between steps only");
    }
    ++at;
  }
}

}  // namespace gradwire::session
