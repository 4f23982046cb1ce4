#include "watch/textfile.hpp"

#include <vector>

namespace gradwire::watch {

std::string file_name(const std::string& part, int rank) {
  return "gradwire-" + part + "-rank-" + std::to_string(rank) + ".prom";
}

bool Turns::is_due(const Totals& totals) {
  const std::uint64_t now = totals.now();
  if (totals.aggregate().ranks().empty() || (!totals.reader().ended && next_ && now < *next_)) {
    return false;
  }
  next_ = now + interval_;
  return true;
}

TextfileWriter::TextfileWriter(const TextfileOptions& options)
    : files_(options.directory, "metrics", "GRADWIRE_METRICS", options.warn), turns_(options.interval) {}

void TextfileWriter::take(Totals& totals) {
  if (!turns_.is_due(totals)) {
    return;
  }
  files_.attempt([&] {
    const std::vector<ReplacedCalls> replaced = totals.replaced();
    for (const auto& [rank, sums] : totals.aggregate().ranks()) {
      files_.write(file_name(totals.part(), rank), to_text(families(sums, totals.reader(), replaced),
                                                           {{"part", totals.part()}, {"rank", std::to_string(rank)}}));
    }
  });
}

}  // namespace gradwire::watch
