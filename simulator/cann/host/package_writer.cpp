#include "cann/host/package_writer.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "cann/host/cann_types.h"
#include "cann/host/kernel_file.h"
#include "cann/host/kernel_names.h"
#include "src/json.h"
#include "src/profile.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json;

constexpr int kVectorCore = 2;  // asc-tools ascendc_ops_config.py, core_type_map
constexpr const char* kKernelFolder = "/op_impl/ai_core/tbe/kernel/";

uint32_t rotate_right(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

// Returns the SHA-256 hash in hexadecimal (FIPS 180-4). Its constants are the first 32 bits of the fractional parts of
// roots of the first primes: cube roots for the round constants K, square roots for the initial hash H. W is the
// message schedule, and `working` has the variables a to h. K, H, W, sigma0, sigma1, T1 and T2 are the standard's
// names.
std::string sha256(std::string bytes) {
    std::array<uint32_t, 64> K;
    std::array<uint32_t, 8> H;
    auto fraction = [](long double root) {
        return static_cast<uint32_t>((root - static_cast<uint32_t>(root)) * 4294967296.0L);
    };
    size_t prime_count = 0;
    for (uint32_t candidate = 2; prime_count < K.size(); ++candidate) {
        bool is_prime = true;
        for (uint32_t divisor = 2; divisor * divisor <= candidate; ++divisor)
            is_prime = is_prime && candidate % divisor != 0;
        if (!is_prime) continue;
        if (prime_count < H.size()) H[prime_count] = fraction(std::sqrt(static_cast<long double>(candidate)));
        K[prime_count++] = fraction(std::cbrt(static_cast<long double>(candidate)));
    }
    const uint64_t message_bits = bytes.size() * 8;
    // Padding: a 1 bit, zeros, and the length of the message in 64 bits, in blocks of 64 bytes.
    bytes += '\x80';
    while (bytes.size() % 64 != 56) bytes += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(message_bits >> shift);
    for (size_t block = 0; block < bytes.size(); block += 64) {
        std::array<uint32_t, 64> W;
        for (size_t i = 0; i < 64; ++i) {
            if (i < 16) {
                W[i] = 0;
                for (size_t byte = 0; byte < 4; ++byte)
                    W[i] = W[i] << 8 | static_cast<uint8_t>(bytes[block + 4 * i + byte]);
                continue;
            }
            const uint32_t sigma0 = rotate_right(W[i - 15], 7) ^ rotate_right(W[i - 15], 18) ^ W[i - 15] >> 3;
            const uint32_t sigma1 = rotate_right(W[i - 2], 17) ^ rotate_right(W[i - 2], 19) ^ W[i - 2] >> 10;
            W[i] = W[i - 16] + sigma0 + W[i - 7] + sigma1;
        }
        std::array<uint32_t, 8> working = H;
        for (size_t i = 0; i < 64; ++i) {
            const uint32_t sigma1 =
                rotate_right(working[4], 6) ^ rotate_right(working[4], 11) ^ rotate_right(working[4], 25);
            const uint32_t T1 =
                working[7] + sigma1 + ((working[4] & working[5]) ^ (~working[4] & working[6])) + K[i] + W[i];
            const uint32_t sigma0 =
                rotate_right(working[0], 2) ^ rotate_right(working[0], 13) ^ rotate_right(working[0], 22);
            const uint32_t T2 =
                sigma0 + ((working[0] & working[1]) ^ (working[0] & working[2]) ^ (working[1] & working[2]));
            for (size_t j = 7; j > 0; --j) working[j] = working[j - 1];
            working[4] += T1;
            working[0] = T1 + T2;
        }
        for (size_t j = 0; j < 8; ++j) H[j] += working[j];
    }
    std::string text;
    for (uint32_t word : H) {
        char hex[9];
        std::snprintf(hex, sizeof hex, "%08x", word);
        text += hex;
    }
    return text;
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
    if (std::ifstream old(path, std::ios::binary); old)
        if (std::string(std::istreambuf_iterator<char>(old), {}) == text) return;
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
}

std::string write_kernels(const std::string& package, const OpRecord& def) {
    const std::string subfolder = def.soc + "/" + snake_case(def.type) + "/",
                      folder = package + kKernelFolder + subfolder;
    std::filesystem::create_directories(folder);
    std::vector<std::string> entries;
    for (size_t column = 0; column < def.columns(); ++column) {
        const std::string name = def.type + "_" + column_name(def, column), entry = kernel_entry(def, column);
        const std::string object = make_object_file(entry), keys = "[\"" + simplified_key(def, column) + "\"]";
        write_file(folder + name + ".o", object);
        Json description;
        description.field("binFileName", name).field("binFileSuffix", ".o").field("kernelName", entry);
        description.field("coreType", "VectorCore").field("sha256", sha256(object));
        description.raw("supportInfo", Json().raw("simplifiedKey", keys).done());
        write_file(folder + name + ".json", description.done() + "\n");
        Json listed;
        listed.raw("coreType", std::to_string(kVectorCore)).raw("simplifiedKey", keys);
        listed.field("binPath", subfolder + name + ".o").field("jsonPath", subfolder + name + ".json");
        entries.push_back(listed.done());
    }
    return Json().raw("binaryList", ascend_sim::json_list(entries)).done();
}

void add_kernels_to_source(const OpRecord& def, std::string* source) {
    const std::string kernel = snake_case(def.type);
    if (source->empty())
        *source = "#define __CCE_AICORE__ " + std::to_string(ascend_sim::find_profile(def.soc.c_str())->arch) +
                  "\n#include \"tiling_prelude.h\"\n";
    for (size_t column = 0; column < def.columns(); ++column) {
        std::string defines, undefs;
        auto define = [&](const std::string& name, const std::string& value) {
            defines += "#define " + name + " " + value + "\n";
            undefs += "#undef " + name + "\n";
        };
        define(kernel, kernel_entry(def, column));
        for (const ParamRecord* param : distinct_parameters(def)) {
            std::string name;
            for (char character : param->name)
                name += static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
            const TypeRow* row = find_type(param->types.at(column));  // not null: op_build refuses other types
            define("DTYPE_" + name, row->kernel_type);
            define("ORIG_DTYPE_" + name, row->enumerator);
        }
        const std::string include_text = "\n" + defines + "#include \"" + kernel + ".cpp\"\n" + undefs;
        if (source->find(include_text) == std::string::npos) *source += include_text;
    }
}

void write_kernel_list(const std::string& package, const std::string& soc, const std::string& list) {
    const std::string folder = package + kKernelFolder + "config/" + soc;
    std::filesystem::create_directories(folder);
    write_file(folder + "/binary_info_config.json", list + "\n");
}

}  // namespace simulated_cann
