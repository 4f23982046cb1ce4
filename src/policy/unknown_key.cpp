#include "policy/unknown_key.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gradwire::policy {
namespace {

constexpr std::size_t kLongestKey = 64;  // a longer key resembles none of ours

// The table in which each key belongs, for keys in the wrong table.
struct KeyHome {
  std::string_view key;
  std::string_view home;
};
constexpr std::string_view kTop = "at the top of the file";
constexpr std::string_view kRequest = "in [defaults] or a [[rule]]";
constexpr std::string_view kRule = "in a [[rule]]";
constexpr std::array kHomes{
    KeyHome{"version", kTop},
    KeyHome{"strict", kTop},
    KeyHome{"deterministic", kTop},
    KeyHome{"floor", kTop},
    KeyHome{"small", "in [defaults]"},
    KeyHome{"codec", kRequest},
    KeyHome{"algorithm", kRequest},
    KeyHome{"sync", kRequest},
    KeyHome{"match", kRule},
    KeyHome{"error_feedback", kRequest},
    KeyHome{"decay", kRequest},
    KeyHome{"max_error", kRequest},
    KeyHome{"min_bytes", kRule},
    KeyHome{"max_bytes", kRule},
    KeyHome{"ndim", kRule},
    KeyHome{"dtype", kRule},
    KeyHome{"order", kRule},
    KeyHome{"communicator_size", kRule},
    KeyHome{"communicator_name", kRule},
    KeyHome{"roles", kRequest},
    KeyHome{"save_as", "at the top of the file"},
    KeyHome{"residuals", kRequest},
    KeyHome{"device_residuals", "in [memory]"},
    KeyHome{"bind", "in [memory]"},
    KeyHome{"limit", "in [memory]"},
    KeyHome{"huge_pages", "in [memory]"},
    KeyHome{"merge", "in [memory]"},
    KeyHome{"trim_above", "in [memory]"},
    KeyHome{"trim_after", "in [memory]"},
    KeyHome{"compact_free", "in [memory]"},
    KeyHome{"compact_failures", "in [memory]"},
    KeyHome{"compact_every", "in [memory]"},
    KeyHome{"bytes", "in [bucket]"},
    KeyHome{"chunk", "in [bucket]"},
    KeyHome{"below", "in small, in [defaults]"},
    KeyHome{"target_exposed", "in [batch]"},
    KeyHome{"min_accumulation", "in [batch]"},
    KeyHome{"max_accumulation", "in [batch]"},
    KeyHome{"scaling", "in [batch]"},
    KeyHome{"blocks", "in [device]"},
    KeyHome{"join", "in [device]"},
    KeyHome{"priority", "in [device]"},
    KeyHome{"suspect", "in [elastic]"},
    KeyHome{"min_ranks", "in [elastic]"},
    KeyHome{"spares", "in [elastic]"},
    KeyHome{"replicate", "in [elastic]"},
    KeyHome{"replicate_as", "in [elastic]"},
    KeyHome{"expel_slower_than", "in [elastic]"},
    KeyHome{"trust_resets", "in [elastic]"},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view text, const std::vector<std::string_view>& names) {
  std::string_view nearest;
  std::size_t nearest_distance = std::min<std::size_t>(text.size(), 9) / 3 + 1;  // so many typing errors are too many
  for (const std::string_view name : names) {
    const std::size_t distance = text.size() > kLongestKey ? text.size() : edit_distance(text, name);
    if (distance < nearest_distance) {
      nearest = name;
      nearest_distance = distance;
    }
  }
  return nearest;
}

std::string unknown_key(std::string_view key, std::string_view where, const std::vector<std::string_view>& known) {
  const std::string what =
      "unknown key \"" + std::string(key.substr(0, kLongestKey)) + "\" " + std::string(where) + "; ";
  const auto* const home =
      std::find_if(kHomes.begin(), kHomes.end(), [&](const KeyHome& entry) { return entry.key == key; });
  if (home != kHomes.end()) {
    return what + "write it " + std::string(home->home);
  }
  std::string all;
  for (const std::string_view name : known) {
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  const std::string_view nearest = nearest_name(key, known);
  return what + (nearest.empty() ? "known here: " + all : "did you mean \"" + std::string(nearest) + "\"?");
}

}  // namespace gradwire::policy
