#include "session/runner/agreements.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {

namespace {

// Names the ranks after `rank` whose texts differ from that of rank 0, too, in one place and not each with its text.
std::string others_that_differ(const std::vector<std::string>& texts, std::size_t rank) {
  std::set<int> alike;
  for (std::size_t other = 0; other < texts.size(); ++other) {
    if (other <= rank || texts[other] == texts[0]) {
      alike.insert(static_cast<int>(other));
    }
  }
  const text::Missing others = text::missing(alike, static_cast<int>(texts.size()));
  if (others.count == 0) {
    return "";
  }
  const bool one = others.count == 1;
  return (one ? " (rank " : " (ranks ") + others.names + (one ? " differs" : " differ") + " from rank 0, too)";
}

}  // namespace

void compare_texts(const std::vector<std::string>& texts, const std::string& about) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      throw Error(ErrorCode::mismatch, "ranks disagree about " + about + ": " +
                                           plan::first_difference(texts[0], 0, texts[rank], static_cast<int>(rank)) +
                                           others_that_differ(texts, rank));
    }
  }
}

void agree_on_text(exchange::Peers& peers, const std::string& mine, const std::string& what, const std::string& about) {
  compare_texts(peers.all_gather(mine, what), about);
}

void agree_on_broadcast(exchange::Peers& peers, std::span<const View> values, int root, bool packed) {
  std::string mine = "broadcast from rank " + std::to_string(root) + (packed ? ", by exact+zstd\n" : "\n");
  for (const View& value : values) {
    mine += std::string(to_string(value.dtype)) + " x " + std::to_string(value.count) + "\n";
  }
  agree_on_text(peers, mine, "the agreement on a broadcast", "a broadcast");
}

std::vector<std::string> agree_on_plan(exchange::Peers& peers, const std::string& mine, const std::string& beside) {
  const std::string what = "the agreement on the plan";
  const std::string print = plan::fingerprint_of(mine);
  std::vector<std::string> texts = peers.all_gather(print + beside, what);
  if (std::any_of(texts.begin(), texts.end(),
                  [&](const std::string& text) { return text.compare(0, print.size(), print) != 0; })) {
    agree_on_text(peers, mine, what, "what to reduce");
  }
  for (std::string& text : texts) {
    text.erase(0, print.size());
  }
  return texts;
}

std::string agreement_text(const plan::Plan& plan, bool weighted, std::uint64_t step, bool holds_residuals,
                           const std::string& parts) {
  return "nodes: " + plan.tiers->text() + "\n" + plan.describe() + "weighted: " + (weighted ? "yes" : "no") +
         "\nstep: " + std::to_string(step) + "\nholds residuals: " + (holds_residuals ? "yes" : "no") + "\n" +
         (parts.empty() ? "" : "parts: " + parts + "\n");
}

std::vector<int> agree_on_nonfinite(exchange::Peers& peers, bool nonfinite, double scale, std::uint64_t step) {
  const std::string what = "step " + std::to_string(step) + " loss scale " + std::to_string(scale);
  const auto answers = peers.all_gather((nonfinite ? "nonfinite " : "finite ") + what, "the check for NaN and Inf");
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const std::string& answer = answers[rank];
    if (answer.substr(answer.find(' ') + 1) != what) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " is at " +
                                           answer.substr(answer.find(' ') + 1) + " where this rank is at " + what +
                                           "; call set_loss_scale() alike on every rank");
    }
    if (answer.starts_with("non")) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

void agree_on_results(exchange::Peers& peers, std::uint64_t hash, std::uint64_t step) {
  const auto hashes = peers.all_gather(std::to_string(hash), "the comparison of ranks");
  std::string different;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) {
      different += (different.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (!different.empty()) {
    throw Error(ErrorCode::mismatch, "results of step " + std::to_string(step) + " differ from rank 0's on rank(s) " +
                                         different +
                                         ": something wrote to a gradient during the step, or memory is damaged");
  }
}

}  // namespace gradwire::session
