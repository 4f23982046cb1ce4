#include "elastic/copy_ring.hpp"

#include <algorithm>
#include <string>

#include "base/log.hpp"
#include "elastic/job_messages.hpp"
#include "elastic/job_processes.hpp"
#include "plan/copy_keepers.hpp"

namespace gradwire::session {
namespace {

// Sends the copy in the background. Returns false without sending if the previous copy is still on its way there.
bool send_copy(Processes& processes, Processes::Id keeper, const Copy& copy) {
  if (processes.unsent(keeper, Processes::Lane::bulk) > 0) {
    return false;
  }
  std::size_t at = 0;
  do {
    wire::Bytes piece{kCopyMark};
    at += put_piece(piece, copy, at);
    send_sealed(processes, keeper, piece, Processes::Lane::bulk);
  } while (at < copy.bytes.size());
  return true;
}

}  // namespace

// Residuals hold at most all elements twice, as fp32, with a position for each.
void CopyRing::bound(std::uint64_t elements) {
  constexpr std::uint64_t kLeast = 1 << 20;
  kept_.take_up_to(in_use() ? kLeast + 4 * sizeof(float) * elements : 0);
}

void CopyRing::enter(const membership::World& world, const std::vector<std::uint32_t>& nodes) {
  before_ = std::exchange(world_, world);
  kept_.forget_before(before_.epoch);
  keepers_before_ = std::exchange(keepers_, plan::copy_keepers(world.members.size(), nodes));
  copied_ = false;
  const bool one_node = std::ranges::all_of(nodes, [&](std::uint32_t node) { return node == nodes[0]; });
  if (in_use() && one_node && world.members.size() > 1 && keepers_before_.empty() &&
      world.members[0] == processes_->self()) {
    log(LogLevel::warning, "[elastic] replicate: all ranks share one node, so a copy of residuals is lost with it");
  }
}

bool CopyRing::is_due_after(std::uint64_t step) const {
  return in_use() && world_.members.size() > 1 && (!copied_ || (step + 1) % every_ == 0);
}

void CopyRing::send(std::uint64_t step, const ResidualCopy& copy) {
  copied_ = true;
  const int keeper = keepers_[static_cast<std::size_t>(membership::rank_in(world_, processes_->self()))];
  const Copy sent{.epoch = world_.epoch, .step = step, .bytes = encode_copy(copy.residuals, copy.loss_scale, form_)};
  if (!send_copy(*processes_, world_.members[static_cast<std::size_t>(keeper)], sent)) {
    log(LogLevel::info, "step " + std::to_string(step) +
                            ": the copy of residuals before this one is still on its way; " + "this one is left out");
  }
}

std::vector<CopyRing::RankCopy> CopyRing::take(const std::vector<Processes::Id>& holders) {
  std::vector<RankCopy> kept;
  const auto lives = [this](Processes::Id who) { return membership::rank_in(world_, who) >= 0; };
  const bool is_first = world_.members.front() == processes_->self();
  for (std::size_t rank = 0; rank < keepers_before_.size() && in_use(); ++rank) {
    const Processes::Id who = before_.members[rank];
    const Processes::Id keeper = before_.members[static_cast<std::size_t>(keepers_before_[rank])];
    if (lives(who) || !std::ranges::binary_search(holders, who)) {
      continue;  // a newcomer that ends before it holds anything has nothing to send
    }
    if (keeper == processes_->self()) {
      const auto copy = kept_.take(who, before_.epoch);
      kept.push_back(copy ? RankCopy{who, copy->step, decode_copy(copy->bytes)} : RankCopy{who});
    } else if (is_first && !lives(keeper)) {
      kept.push_back({who});
    }
  }
  kept_.forget_before(world_.epoch);  // also the copies of live ranks that have another keeper now
  return kept;
}

}  // namespace gradwire::session
