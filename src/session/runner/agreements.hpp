// What the ranks of a session agree on, beside the data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exchange/peers.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

// What ranks agree on; each throws Error(mismatch) on every rank.
/// The same text everywhere; `what` names the exchange, `about` what ranks disagree about.
void agree_on_text(exchange::Peers& peers, const std::string& mine, const std::string& what, const std::string& about);
void compare_texts(const std::vector<std::string>& texts, const std::string& about);
/// Rank and sizes of a broadcast.
void agree_on_broadcast(exchange::Peers& peers, std::span<const View> values, int root);
/// All have the same agreement_text(): a fingerprint first, since it is long and mostly equal. Returns what each rank
/// says `beside` it, which may differ.
std::vector<std::string> agree_on_plan(exchange::Peers& peers, const std::string& mine, const std::string& beside);
/// All that ranks must agree on before the first step.
[[nodiscard]] std::string agreement_text(const plan::Plan& plan, bool weighted, std::uint64_t step,
                                         bool holds_residuals, const std::string& parts);
/// Ranks that say `nonfinite`; all must be at this step with this loss scale.
[[nodiscard]] std::vector<int> agree_on_nonfinite(exchange::Peers& peers, bool nonfinite, double scale,
                                                  std::uint64_t step);
/// Names the ranks whose hash of a step's results differs from rank 0's.
void agree_on_results(exchange::Peers& peers, std::uint64_t hash, std::uint64_t step);

}  // namespace gradwire::session
