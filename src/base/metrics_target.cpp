#include "base/metrics_target.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr std::string_view kFile = "file:";
constexpr std::string_view kHttp = "http:";
constexpr std::string_view kOtlp = "otlp:";
constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kAddRank = "+rank";

[[noreturn]] void bad(std::string_view text, const std::string& why) {
  throw Error(
      ErrorCode::invalid_argument,
      "GRADWIRE_METRICS is \"" + std::string(text) + "\"" + (why.empty() ? "" : ": " + why) +
          "; write file:DIRECTORY, http:[ADDRESS:]PORT[+rank] such as http:127.0.0.1:9464+rank, otlp:DIRECTORY, "
          "unix:DIRECTORY, or several of them with commas between them");
}

// The number, if it is the whole text and at most `most`.
std::optional<std::uint32_t> number(std::string_view text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) {
    return std::nullopt;
  }
  return value;
}

// Only numeric addresses are allowed, since a name may mean another host tomorrow.
bool is_address(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    const std::string_view inside = text.substr(1, text.size() - 2);
    return inside.find(':') != std::string_view::npos &&
           inside.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
  }
  int parts = 0;
  while (true) {
    const std::size_t dot = text.find('.');
    if (text.substr(0, dot).size() > 3 || !number(text.substr(0, dot), 255)) {
      return false;
    }
    ++parts;
    if (dot == std::string_view::npos) {
      return parts == 4;
    }
    text.remove_prefix(dot + 1);
  }
}

MetricsTarget::Http parse_http(std::string_view text, std::string_view whole) {
  MetricsTarget::Http http;
  if (text.ends_with(kAddRank)) {
    http.add_rank = true;
    text.remove_suffix(kAddRank.size());
  }
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    http.address = std::string(text.substr(0, colon));
    if (!is_address(http.address)) {
      bad(whole, "\"" + http.address + "\" is no address in numbers");
    }
    text.remove_prefix(colon + 1);
  }
  const auto port = number(text, std::numeric_limits<std::uint16_t>::max());
  if (!port || *port == 0) {
    bad(whole, "\"" + std::string(text) + "\" is no port");
  }
  http.port = static_cast<std::uint16_t>(*port);
  return http;
}

// The place where the next target begins; a directory may contain commas.
std::size_t end_of_first(std::string_view text) {
  const auto place_of = [&](std::string_view kind) { return text.find("," + std::string(kind)); };
  return std::min({place_of(kFile), place_of(kHttp), place_of(kOtlp), place_of(kUnix)});
}

// A directory may contain commas, but not a part that looks like another target, which is a mistake.
std::string directory_of(std::string_view text, std::string_view whole) {
  for (std::size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',', comma + 1)) {
    const std::string_view behind = text.substr(comma + 1);
    const std::size_t colon = behind.find(':');
    const bool word = colon != std::string_view::npos && colon > 0 &&
                      behind.substr(0, colon).find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos;
    if (word) {
      bad(whole, "\"" + std::string(behind.substr(0, colon)) + ":\" is no kind of target");
    }
  }
  return std::string(text);
}

}  // namespace

std::string MetricsTarget::Http::for_rank(int rank) const {
  const std::uint32_t sum = port + (add_rank ? static_cast<std::uint32_t>(rank) : 0);
  if (sum > std::numeric_limits<std::uint16_t>::max()) {
    throw Error(ErrorCode::invalid_argument, "port " + std::to_string(port) + " plus rank " + std::to_string(rank) +
                                                 " is above 65535; write a lower port");
  }
  return address + ":" + std::to_string(sum);
}

MetricsTarget MetricsTarget::parse(std::string_view text) {
  MetricsTarget target;
  std::string_view rest = text;
  while (true) {
    const std::size_t end = end_of_first(rest);
    const std::string_view one = rest.substr(0, end);
    if (one.starts_with(kFile) && one.size() > kFile.size() && target.directory.empty()) {
      target.directory = directory_of(one.substr(kFile.size()), text);
    } else if (one.starts_with(kHttp) && !target.http) {
      target.http = parse_http(one.substr(kHttp.size()), text);
    } else if (one.starts_with(kOtlp) && one.size() > kOtlp.size() && target.otlp.empty()) {
      target.otlp = directory_of(one.substr(kOtlp.size()), text);
    } else if (one.starts_with(kUnix) && one.size() > kUnix.size() && target.sockets.empty()) {
      target.sockets = directory_of(one.substr(kUnix.size()), text);
    } else {
      const bool first = target.directory.empty() && !target.http && target.otlp.empty() && target.sockets.empty();
      bad(text, first ? "" : "one of each is the most");
    }
    if (end == std::string_view::npos) {
      return target;
    }
    rest.remove_prefix(end + 1);
  }
}

}  // namespace gradwire
