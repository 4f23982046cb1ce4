// Names of saves, and the texts in which ranks tell each other which ones they have.
#include <algorithm>
#include <random>
#include <span>
#include <string_view>

#include "table/table_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::table {

SaveId read_save(wire::ByteReader& in) {
  const auto clock = in.number<std::uint64_t>();
  return {.clock = clock, .number = in.number<std::uint64_t>()};
}

SaveId new_save_id(std::uint64_t clock) {
  std::random_device random;
  const std::uint64_t high = random();
  return {.clock = clock, .number = high << 32U | random()};
}

std::string to_text(const SaveId& save, const std::filesystem::path& file) {
  wire::Bytes bytes;
  wire::put_number(bytes, save.clock);
  wire::put_number(bytes, save.number);
  return std::string(wire::as_text(bytes)) + file.string();
}

SaveId save_of(const std::string& text, int peer) {
  wire::ByteReader in(std::as_bytes(std::span(text)), "what rank " + std::to_string(peer) + " said of a saved table");
  return read_save(in);
}

std::string to_text(const std::vector<SaveId>& saves) {
  std::string text;
  for (const SaveId& save : saves) {
    text += to_text(save);
  }
  return text;
}

std::optional<SaveId> common_save(const std::vector<std::string>& texts) {
  constexpr std::size_t kBytes = sizeof(SaveId);
  const auto has = [](const std::string& text, std::string_view save) {
    for (std::size_t at = 0; at + kBytes <= text.size(); at += kBytes) {
      if (std::string_view(text).substr(at, kBytes) == save) {
        return true;
      }
    }
    return false;
  };
  for (std::size_t at = 0; at + kBytes <= texts[0].size(); at += kBytes) {
    const std::string save = texts[0].substr(at, kBytes);
    if (std::all_of(texts.begin(), texts.end(), [&](const std::string& text) { return has(text, save); })) {
      return save_of(save, 0);
    }
  }
  return std::nullopt;
}

void compare_saves(const std::vector<std::string>& texts) {
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const SaveId first = save_of(texts[0], 0);
    const SaveId other = save_of(texts[i], static_cast<int>(i));
    if (first == other) {
      continue;
    }
    const auto describe = [](const std::string& text, const SaveId& save) {
      return text.substr(sizeof save) + " (clock " + std::to_string(save.clock) + ")";
    };
    throw Error(ErrorCode::mismatch, describe(texts[0], first) + " and " + describe(texts[i], other) +
                                         " are of different saves; use a directory that one save() wrote as a whole");
  }
}

}  // namespace gradwire::table
