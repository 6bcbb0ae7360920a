#include "record/trace.hpp"

#include "comm/messages.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

constexpr Index kDefaultSteps = 10;
constexpr std::size_t kBarriers = 15;
constexpr std::size_t kReserved = std::size_t{1} << 16;  // spans: ten steps of a model of 100 layers

std::int64_t nanoseconds(Span::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// "1234.567"
std::string microseconds_text(Span::Clock::duration duration) {
  std::array<char, 32> text;
  const std::int64_t whole = nanoseconds(duration);
  std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(whole / 1000),
                static_cast<long long>(whole % 1000));
  return text.data();
}

std::string_view category(SpanKind kind) {
  return kind == SpanKind::kStep ? "step" : kind == SpanKind::kPhase ? "phase" : "product";
}

std::string event_line(const Span& span, Span::Clock::time_point origin, int rank) {
  const std::string number = std::to_string(span.number);
  std::string line = "{\"name\":\"" + std::string(span.name);
  if (span.kind == SpanKind::kStep) line += " " + number;
  line += "\",\"cat\":\"" + std::string(category(span.kind)) +
          "\",\"ph\":\"X\",\"pid\":0,\"tid\":" + std::to_string(rank) +
          ",\"ts\":" + microseconds_text(span.begin - origin) +
          ",\"dur\":" + microseconds_text(span.end - span.begin);
  if (span.kind == SpanKind::kProduct) line += ",\"args\":{\"rows\":" + number + "}";
  return line + "},\n";
}

std::string named(const std::string& event, int tid, const std::string& args) {
  return "{\"name\":\"" + event + "\",\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(tid) + ",\"args\":{" +
         args + "}}";
}

/// Messages carry floats: text in as many as hold it.
std::vector<float> floats_for(Index bytes) {
  return std::vector<float>(at(ceil_div(bytes, static_cast<Index>(sizeof(float)))));
}

/// When it is asked for, so that rank 0 need not hold what others would send it meanwhile.
void send_text(const Communicator& ranks, int to, const std::string& text) {
  std::vector<float> packed = floats_for(std::ssize(text));
  if (!text.empty()) std::memcpy(packed.data(), text.data(), text.size());
  Messages messages(ranks);
  float request = 0;
  messages.receive(to, {&request, 1});
  messages.wait_for(0, 1);
  messages.send(to, packed);
  messages.finish();
}

std::string receive_text(const Communicator& ranks, int from, Index bytes) {
  std::vector<float> packed = floats_for(bytes);
  Messages messages(ranks);
  messages.receive(from, packed);
  constexpr float kRequest = 1;
  messages.send(from, {&kRequest, 1});
  messages.finish();
  return {reinterpret_cast<const char*>(packed.data()), at(bytes)};
}

/// The steps of `run` that are asked for; by itself ten of them, after the first, which warms up.
StepRange asked_range(const TraceOptions& options, StepRange run) {
  const Index first = std::min(run.from + 1, run.to - 1);
  const StepRange asked = options.steps.value_or(StepRange{first, first + kDefaultSteps});
  const StepRange range{std::max(asked.from, run.from), std::min(asked.to, run.to)};
  if (range.from >= range.to)
    throw ConfigError({"`trace-steps` " + value_text(asked) + " holds none of the steps " +
                       std::to_string(run.from) + " to " + std::to_string(run.to - 1) +
                       " that this run takes"});
  return range;
}

}  // namespace

std::int64_t clock_offset(std::span<const std::int64_t> mine, std::span<const std::int64_t> theirs) {
  std::vector<std::int64_t> differences(mine.size());
  std::ranges::transform(theirs, mine, differences.begin(), std::minus<>());
  const auto middle = differences.begin() + std::ssize(differences) / 2;
  std::ranges::nth_element(differences, middle);
  return *middle;
}

std::string trace_events(std::vector<Span> spans, Span::Clock::time_point origin, int rank) {
  std::ranges::sort(spans, [](const Span& a, const Span& b) {
    return std::tie(a.begin, a.kind) < std::tie(b.begin, b.kind);
  });
  std::string text;
  for (const Span& span : spans) text += event_line(span, origin, rank);
  return text;
}

TraceFile::TraceFile(std::filesystem::path path)
    : path_(std::move(path)), partial_(path_.string() + ".partial"), file_(partial_) {
  if (!file_) throw_io_error("cannot write `trace` " + path_.string(), errno);
  file_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
}

TraceFile::~TraceFile() {
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void TraceFile::finish(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    file_ << named("thread_name", rank, "\"name\":\"rank " + std::to_string(rank) + "\"") << ",\n"
          << named("thread_sort_index", rank, "\"sort_index\":" + std::to_string(rank)) << ",\n";
  }
  file_ << named("process_name", 0, "\"name\":\"moeloom\"") << "\n]}\n" << std::flush;
  if (!file_) throw_io_error("cannot write `trace` " + path_.string(), errno);
  std::filesystem::rename(partial_, path_);
}

Trace::Trace(const TraceOptions& options, StepRange run, const Mesh& mesh)
    : path_(options.file), range_(asked_range(options, run)), mesh_(mesh) {
  spans_.reserve(kReserved);
}

void Trace::open() {
  agree(mesh_.world(), [&] {
    if (mesh_.world().rank() == 0) file_.emplace(path_);
  });
}

/// Every host counts from its own start. All of a node's ranks read one clock, so they share the offset of
/// its first rank and stand right to each other whatever the barriers were worth.
void Trace::align() {
  const Communicator& world = mesh_.world();
  std::array<std::int64_t, kBarriers> read{};
  for (std::int64_t& time : read) {
    world.barrier();
    time = nanoseconds(Span::Clock::now().time_since_epoch());
  }
  const std::vector<std::int64_t> all = world.all_gather(std::span<const std::int64_t>(read));
  const std::int64_t me = world.rank();
  const auto of = [&](std::int64_t rank) { return std::span(all).subspan(at(rank) * kBarriers, kBarriers); };
  const std::int64_t first_here = mesh_.node().all_gather(std::span(&me, 1)).front();
  const std::chrono::nanoseconds origin(of(0).front() + clock_offset(of(0), of(first_here)));
  origin_ = Span::Clock::time_point(origin);
}

/// Rank after rank, so that rank 0 holds no more than one lane beside its own.
void Trace::write() {
  const Communicator& world = mesh_.world();
  const std::string mine = trace_events(std::exchange(spans_, {}), origin_, world.rank());
  const auto size = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> sizes = world.all_gather(std::span(&size, 1));
  if (world.rank() != 0) send_text(world, 0, mine);
  if (file_) file_->append(mine);
  for (int rank = 1; rank < world.size() && world.rank() == 0; ++rank)
    file_->append(receive_text(world, rank, sizes[at(rank)]));
  agree(world, [&] {
    if (file_) file_->finish(world.size());
  });
}

}  // namespace moeloom
