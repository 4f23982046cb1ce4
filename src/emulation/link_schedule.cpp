#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "base/units.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kForEver = LinkPhase::kForEver;
constexpr nanoseconds kShortestInterval = std::chrono::milliseconds(1);
constexpr const char* kExample = "100Mbit/s until 20s, 1Gbit/s; noise 30% per 100ms seed 7";

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

std::string trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string()
                                         : std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// The words of a text, each with the place where it begins.
struct Word {
  std::size_t place;
  std::string_view text;
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t at = text.find_first_not_of(" \t"); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
    words.push_back({at, text.substr(at, end - at)});
    at = text.find_first_not_of(" \t", end);
  }
  return words;
}

bool has_end(std::string_view phase) {
  const auto words = words_of(phase);
  return std::any_of(words.begin(), words.end(), [](const Word& word) { return word.text == "until"; });
}

bool begins_with_rate(std::string_view item) {
  const auto words = words_of(item);
  for (std::size_t i = 0; i < words.size() && words[i].text != "until"; ++i) {
    if (words[i].text.ends_with("/s") || words[i].text == "unlimited") {
      return true;
    }
  }
  return false;
}

// Splits a text into phases. Behind a comma stands a phase, or the latency of the phase before it.
std::vector<std::string> split_phases(std::string_view text) {
  std::vector<std::string> phases;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    if (phases.empty() || has_end(phases.back()) || begins_with_rate(item)) {
      phases.push_back(trim(item));
    } else {
      phases.back().append(",").append(item);
    }
    at = comma + 1;
  }
  return phases;
}

LinkPhase parse_phase(const std::string& text) {
  for (const Word& word : words_of(text)) {
    if (word.text == "until") {
      const nanoseconds end = parse_duration(std::string_view(text).substr(word.place + word.text.size()));
      return {Link::parse(trim(std::string_view(text).substr(0, word.place))), end};
    }
  }
  return {Link::parse(text), kForEver};
}

// "noise 30% per 100ms seed 7"
LinkNoise parse_noise(const std::string& text) {
  const auto words = words_of(text);
  const bool seeded = words.size() == 6 && words[4].text == "seed";
  if ((words.size() != 4 && !seeded) || words[0].text != "noise" || words[2].text != "per") {
    fail("expected for example \"noise 30% per 100ms seed 7\" after the semicolon");
  }
  LinkNoise noise{.sigma = parse_fraction(words[1].text), .interval = parse_duration(words[3].text)};
  if (seeded) {
    const std::string_view digits = words[5].text;
    if (digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      fail("bad seed \"" + std::string(digits) + "\": write a whole number of up to 18 digits, such as 7");
    }
    noise.seed = std::stoull(std::string(digits));
  }
  return noise;
}

void check_phase(const std::vector<LinkPhase>& phases, std::size_t i) {
  const LinkPhase& phase = phases[i];
  const std::string name = "phase " + std::to_string(i + 1) + " (" + phase.link.to_string() + ") ";
  if (!(phase.link.bytes_per_second >= 0) || phase.link.latency.count() < 0) {
    fail(name + "has a rate or latency below 0; 0 means unlimited, none");
  }
  const nanoseconds before = i == 0 ? nanoseconds(0) : phases[i - 1].end;
  const bool last = i + 1 == phases.size();
  if (last && phase.end != kForEver) {
    fail(name + "is the last and ends at " + format_duration(phase.end) +
         ": add one without an end that holds from then on, such as \", 1Gbit/s\"");
  }
  if (!last && phase.end == kForEver) {
    fail(name + "has no end, but others follow: write \"until\" and a time, such as until 30s");
  }
  if (phase.end <= before) {
    fail(name + "ends at " + format_duration(phase.end) + ", which must be after " + format_duration(before) +
         ", where it begins: times count from the start of the schedule and ascend");
  }
}

// splitmix64: turns a counter into 64 well mixed bits.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Standard Gaussian by Box and Muller, a pure function of its arguments.
double gaussian(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t key = mix(mix(seed) ^ index);
  const auto uniform = [](std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; };
  return std::sqrt(-2 * std::log(uniform(key))) * std::cos(2 * std::numbers::pi * uniform(mix(key)));
}

std::int64_t interval_of(nanoseconds time, nanoseconds interval) {
  const std::int64_t whole = time / interval;
  return time.count() < 0 && time % interval != nanoseconds(0) ? whole - 1 : whole;
}

}  // namespace

LinkSchedule::LinkSchedule(const Link& link) : LinkSchedule(std::vector<LinkPhase>{{link, kForEver}}) {}

LinkSchedule::LinkSchedule(std::vector<LinkPhase> phases, const LinkNoise& noise)
    : phases_(std::move(phases)), noise_(noise) {
  if (phases_.empty()) {
    fail("a link schedule needs at least one phase, such as 1Gbit/s");
  }
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    check_phase(phases_, i);
  }
  if (!(noise_.sigma >= 0 && noise_.sigma <= 1)) {
    fail("the noise of a link is between 0 and 100%");
  }
  if (noise_.sigma > 0 && noise_.interval < kShortestInterval) {
    fail("the noise of a link changes every " + format_duration(noise_.interval) + "; at least 1ms is needed");
  }
}

LinkSchedule LinkSchedule::parse(const std::string& text) {
  const std::size_t semicolon = text.find(';');
  const auto texts = split_phases(std::string_view(text).substr(0, semicolon));
  if (texts.size() == 1 && semicolon == std::string::npos && !has_end(text)) {
    return Link::parse(text);
  }
  std::string where;  // the part being read
  try {
    std::vector<LinkPhase> phases;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      where = "phase " + std::to_string(i + 1) + " \"" + texts[i] + "\": ";
      phases.push_back(parse_phase(texts[i]));
    }
    LinkNoise noise;
    if (semicolon != std::string::npos) {
      where = "\"" + trim(std::string_view(text).substr(semicolon + 1)) + "\": ";
      noise = parse_noise(text.substr(semicolon + 1));
    }
    where.clear();
    return LinkSchedule(std::move(phases), noise);
  } catch (const Error& error) {
    throw Error(error.code(),
                "link schedule \"" + text + "\": " + where + error.what() + "; write for example " + kExample);
  }
}

std::string LinkSchedule::to_string() const {
  std::string text;
  for (const LinkPhase& phase : phases_) {
    text.append(text.empty() ? "" : ", ").append(phase.link.to_string());
    if (phase.end != kForEver) {
      text.append(" until ").append(format_duration(phase.end));
    }
  }
  if (noise_.sigma > 0) {
    text.append("; noise ").append(format_number(noise_.sigma * 100, 12)).append("% per ");
    text.append(format_duration(noise_.interval)).append(" seed ").append(std::to_string(noise_.seed));
  }
  return text;
}

const Link& LinkSchedule::link_at(nanoseconds time) const {
  return std::find_if(phases_.begin(), phases_.end() - 1, [&](const LinkPhase& phase) { return time < phase.end; })
      ->link;
}

double LinkSchedule::rate_at(nanoseconds time) const {
  const double rate = link_at(time).bytes_per_second;
  if (noise_.sigma == 0) {
    return rate;
  }
  const double z = gaussian(noise_.seed, static_cast<std::uint64_t>(interval_of(time, noise_.interval)));
  return rate * std::exp(noise_.sigma * z - noise_.sigma * noise_.sigma / 2);
}

nanoseconds LinkSchedule::next_change(nanoseconds time) const {
  nanoseconds next = kForEver;
  for (const LinkPhase& phase : phases_) {
    if (phase.end > time) {
      next = phase.end;
      break;
    }
  }
  return noise_.sigma == 0 ? next : std::min(next, (interval_of(time, noise_.interval) + 1) * noise_.interval);
}

nanoseconds LinkSchedule::end_of(nanoseconds start, double bytes) const {
  nanoseconds time = start;
  while (bytes > 0) {
    const double rate = rate_at(time);
    if (rate <= 0) {
      break;
    }
    const nanoseconds next = next_change(time);
    const std::chrono::duration<double> left(bytes / rate);
    if (next == kForEver || left <= next - time) {
      return time + std::chrono::duration_cast<nanoseconds>(left);
    }
    bytes -= rate * std::chrono::duration<double>(next - time).count();
    time = next;
  }
  return time;
}

}  // namespace gradwire
