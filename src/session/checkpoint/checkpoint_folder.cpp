#include "session/checkpoint/checkpoint_folder.hpp"

#define XXH_INLINE_ALL  // no need of libxxhash in programs that link gradwire
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/durable_file.hpp"
#include "base/log.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {
namespace {

constexpr std::string_view kParameters = "parameters.gradwire";
constexpr std::string_view kUnusable = ".unusable";
constexpr std::string_view kParametersMagic = "gradwpar";
constexpr std::uint32_t kParametersVersion = 1;
constexpr std::size_t kParametersHash = 8;
constexpr std::size_t kUnderWay =
    3;  // steps; ranks write one at a time, and none begins the next but one before all did

std::uint64_t bytes_of(const ConstView& view) { return view.count * element_bytes(view.dtype); }

bool is_complete(const std::filesystem::path& folder, const CheckpointName& name) {
  std::error_code ignored;
  bool all = std::filesystem::exists(folder / kParameters, ignored);
  for (int rank = 0; all && rank < name.world_size; ++rank) {
    all = std::filesystem::exists(folder / state_file_name(rank, name.world_size), ignored);
  }
  return all;
}

struct Found {
  CheckpointName name;
  std::filesystem::path folder;
  bool complete = false;
  std::filesystem::file_time_type written = {};  // where complete

  [[nodiscard]] bool is_unusable() const { return folder.string().ends_with(kUnusable); }
};

// The first of its files that is not there.
std::string missing_in(const Found& found) {
  std::error_code ignored;
  for (int rank = 0; rank < found.name.world_size; ++rank) {
    std::string file = state_file_name(rank, found.name.world_size);
    if (!std::filesystem::exists(found.folder / file, ignored)) {
      return file;
    }
  }
  return std::string(kParameters);
}

void remove_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove(folder / kParameters, error);  // from here on it is not complete
  std::filesystem::remove_all(folder, error);
  if (error) {
    log(LogLevel::warning, "checkpoint: " + folder.string() + " cannot be removed: " + error.message());
  }
}

// The newest first; with those set aside, which are never complete.
std::vector<Found> find_all(const std::filesystem::path& directory) {
  std::vector<Found> all;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string text = entry->path().filename().string();
    const bool unusable = text.ends_with(kUnusable);
    text.resize(text.size() - (unusable ? kUnusable.size() : 0));
    if (const auto name = CheckpointName::parse(text)) {
      Found found{*name, entry->path(), !unusable && is_complete(entry->path(), *name)};
      std::error_code ignored;
      found.written = std::filesystem::last_write_time(found.folder / kParameters, ignored);
      all.push_back(std::move(found));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorCode::invalid_argument, directory.string() + ": cannot be read (" + error.message() + ")");
  }
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.name.step != b.name.step ? a.name.step > b.name.step : a.written > b.written;
  });
  return all;
}

template <class Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return failure == std::errc();
}

bool take(std::string_view& text, std::string_view prefix) {
  const bool there = text.starts_with(prefix);
  text.remove_prefix(there ? prefix.size() : 0);
  return there;
}

}  // namespace

std::string CheckpointName::text() const {
  char text[96];
  std::snprintf(text, sizeof text, "step-%012llu-of-%d-%016llx", static_cast<unsigned long long>(step), world_size,
                static_cast<unsigned long long>(hash));
  return text;
}

std::optional<CheckpointName> CheckpointName::parse(const std::string& text) {
  CheckpointName name;
  std::string_view rest = text;
  const bool good = take(rest, "step-") && take_number(rest, name.step) && take(rest, "-of-") &&
                    take_number(rest, name.world_size) && take(rest, "-") && take_number(rest, name.hash, 16) &&
                    rest.empty() && name.world_size > 0 && name.text() == text;
  return good ? std::optional(name) : std::nullopt;
}

std::uint64_t hash_of(std::span<const ConstView> parameters) {
  std::uint64_t hash = 0;
  for (const ConstView& view : parameters) {
    const std::uint64_t head[] = {hash, view.count, static_cast<std::uint64_t>(view.dtype)};
    hash = XXH3_64bits_withSeed(view.data, bytes_of(view), XXH3_64bits(head, sizeof head));
  }
  return hash;
}

wire::Bytes encode_parameters(std::span<const ConstView> parameters, std::uint64_t step) {
  std::uint64_t bytes = 64;
  for (const ConstView& view : parameters) {
    bytes += bytes_of(view) + 16;
  }
  wire::Bytes out;
  out.reserve(bytes);  // so that large parameters are copied once
  wire::put(out, kParametersMagic.data(), kParametersMagic.size());
  wire::put_number(out, kParametersVersion);
  wire::put_number(out, static_cast<std::uint32_t>(parameters.size()));
  wire::put_number(out, step);
  for (const ConstView& view : parameters) {
    wire::put_number(out, static_cast<std::uint8_t>(view.dtype));
    wire::put_number(out, view.count);
    wire::put(out, view.data, bytes_of(view));
  }
  wire::put_number(out, static_cast<std::uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

void write_checkpoint_state(const std::filesystem::path& directory, const CheckpointName& name,
                            const SavedState& state) {
  DurableFile(directory / name.text(), state_file_name(state.rank, state.world_size), [&](std::ostream& stream) {
    write_state(state, stream);
  }).commit();
  sync_directory(directory);  // the folder may be new
}

void write_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                 const wire::Bytes& parameters) {
  DurableFile(directory / name.text(), std::string(kParameters), [&](std::ostream& stream) {
    stream.write(reinterpret_cast<const char*>(parameters.data()), static_cast<std::streamsize>(parameters.size()));
  }).commit();
}

void rotate_checkpoints(const std::filesystem::path& directory, int keep) {
  std::optional<std::uint64_t> oldest;  // of those kept
  std::set<std::uint64_t> newer;        // steps
  for (const Found& found : find_all(directory)) {
    const bool given_up = !found.complete && !found.is_unusable() && newer.size() >= kUnderWay;
    newer.insert(found.name.step);
    if (found.complete && keep > 0) {
      oldest = found.name.step;
      --keep;
    } else if (found.complete || given_up || (keep == 0 && found.name.step < oldest)) {
      if (given_up && found.name.step > oldest.value_or(0)) {
        log(LogLevel::warning, "checkpoint: " + found.folder.string() +
                                   " never became complete, and is removed: " + missing_in(found) +
                                   " did not come; do all ranks see this directory, and hold the same parameters?");
      }
      remove_folder(found.folder);
    }
  }
}

std::vector<CheckpointName> complete_checkpoints(const std::filesystem::path& directory) {
  std::vector<CheckpointName> names;
  for (const Found& found : find_all(directory)) {
    if (found.complete) {
      names.push_back(found.name);
    }
  }
  return names;
}

std::uint64_t latest_checkpoint_step(const std::filesystem::path& directory) {
  for (const Found& found : find_all(directory)) {
    if (!found.is_unusable()) {
      return found.name.step;
    }
  }
  return 0;
}

void set_aside_later_checkpoints(const std::filesystem::path& directory, std::uint64_t step) {
  for (const Found& found : find_all(directory)) {
    if (found.name.step <= step || found.is_unusable()) {
      continue;
    }
    const std::string to = found.folder.string() + std::string(kUnusable);
    std::error_code error;
    std::filesystem::remove_all(to, error);
    std::filesystem::rename(found.folder, to, error);
    log(LogLevel::warning, "restore: " + found.folder.string() + " is " +
                               (found.complete ? "damaged" : "not complete: a file is missing") +
                               (error ? ", and cannot be renamed: " + error.message() : "; it is " + to + " now"));
  }
}

std::vector<wire::Bytes> read_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                                    std::span<const View> parameters) {
  const std::filesystem::path file = directory / name.text() / kParameters;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw Error(ErrorCode::invalid_argument, file.string() + ": cannot be read");
  }
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  wire::ByteReader in(bytes, file.string());
  const std::size_t hashed = bytes.size() - std::min(bytes.size(), kParametersHash);
  wire::ByteReader end(bytes.subspan(hashed), file.string());
  if (wire::as_text(in.take(kParametersMagic.size())) != kParametersMagic ||
      in.number<std::uint32_t>() != kParametersVersion ||
      end.number<std::uint64_t>() != XXH3_64bits(bytes.data(), hashed)) {
    in.fail("it is cut off or damaged");
  }
  const auto count = in.number<std::uint32_t>();
  if (in.number<std::uint64_t>() != name.step) {
    in.fail("it is of another step");
  }
  const auto mismatch = [&](std::size_t i) {
    return Error(ErrorCode::mismatch, file.string() + ": parameter " + std::to_string(i) + " is another one there; " +
                                          "restore what this model saved");
  };
  if (count != parameters.size()) {
    throw mismatch(std::min<std::size_t>(count, parameters.size()));
  }
  std::vector<wire::Bytes> values;
  for (const View& view : parameters) {
    const auto dtype = static_cast<DType>(in.number<std::uint8_t>());
    if (in.number<std::uint64_t>() != view.count || dtype != view.dtype) {
      throw mismatch(values.size());
    }
    const auto taken = in.take(bytes_of(view));
    values.emplace_back(taken.begin(), taken.end());
  }
  return values;
}

}  // namespace gradwire::session
