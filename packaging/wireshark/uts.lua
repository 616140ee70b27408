-- Shows what of UTS is in the clear (spec/packets.md): establishment packets, ids, and the epoch of adaptive packets. An epoch
-- names the profile in use, so that an exchange of mechanisms is seen without keys: filter `utst.exchange`. (Wireshark has
-- another protocol of the name uts.)
--
-- Copy it into the folder that Help > About Wireshark > Folders names "Personal Lua Plugins", or: tshark -X lua_script:uts.lua
local uts = Proto("utst", "Universal Transport System")

local VERSION = 0x55545302
local TYPES = { [0] = "Initial", [1] = "Handshake", [2] = "Retry", [3] = "Early" }
local INTEGRITY_BYTES = 16

local f = {
    long = ProtoField.bool("utst.long", "Establishment packet", 8, nil, 0x80),
    type = ProtoField.uint8("utst.type", "Type", base.DEC, TYPES, 0x03),
    epoch = ProtoField.uint8("utst.epoch", "Epoch modulo 32", base.DEC, nil, 0x7c),
    version = ProtoField.uint32("utst.version", "Version", base.HEX),
    offered = ProtoField.uint32("utst.version.offered", "Version that the server speaks", base.HEX),
    dcid = ProtoField.bytes("utst.dcid", "Receiver's connection id"),
    scid = ProtoField.bytes("utst.scid", "Sender's connection id"),
    token = ProtoField.bytes("utst.token", "Token"),
    length = ProtoField.uint64("utst.length", "Length of number, body and tag"),
    integrity = ProtoField.bytes("utst.integrity", "Integrity tag"),
    protected = ProtoField.bytes("utst.protected", "Protected"),
    exchange = ProtoField.string("utst.exchange", "Exchange of mechanisms"),
}
uts.fields = f

local malformed = ProtoExpert.new("utst.malformed", "Not as spec/packets.md says", expert.group.MALFORMED, expert.severity.ERROR)
uts.experts = { malformed }

-- By the end that has chosen them, how long its connection ids are, from its establishment packets; and by direction, the
-- epoch in use. Wireshark reads a capture from the front once; then it asks for packets in any order, so what a packet has
-- shown is kept by its number.
local id_bytes, epochs, exchanges = {}, {}, {}

function uts.init()
    id_bytes, epochs, exchanges = {}, {}, {}
end

local function sender(pinfo) return tostring(pinfo.src) .. " " .. pinfo.src_port end
local function receiver(pinfo) return tostring(pinfo.dst) .. " " .. pinfo.dst_port end

-- A variable-length integer (RFC 9000, section 16): its value and its length in bytes; nothing if it is cut off.
local function varint(tvb, at)
    if at >= tvb:len() then return end
    local bytes = bit.lshift(1, bit.rshift(tvb(at, 1):uint(), 6))
    if at + bytes > tvb:len() then return end
    local value = bit.band(tvb(at, 1):uint(), 0x3f)
    for n = 1, bytes - 1 do value = value * 256 + tvb(at + n, 1):uint() end
    return value, bytes
end

-- Adds a connection id with its length before it: where the next field is; nothing if it is cut off.
local function add_id(tvb, at, tree, field)
    if at >= tvb:len() then return end
    local bytes = tvb(at, 1):uint()
    if at + 1 + bytes > tvb:len() then return end
    if bytes > 0 then tree:add(field, tvb(at + 1, bytes)) end
    return at + 1 + bytes, bytes
end

-- One establishment packet: where the next is, and its name; nothing if it breaks the form.
local function long_packet(tvb, at, pinfo, tree)
    if tvb:len() - at < 7 then return end
    local first, version = tvb(at, 1):uint(), tvb(at + 1, 4):uint()
    local name = version == 0 and "Version refusal" or version ~= VERSION and "Unknown version" or TYPES[bit.band(first, 3)]
    if not name then return end
    local packet = tree:add(tvb(at), name)
    packet:add(f.long, tvb(at, 1))
    if version == VERSION then packet:add(f.type, tvb(at, 1)) end
    packet:add(f.version, tvb(at + 1, 4))
    local to = add_id(tvb, at + 5, packet, f.dcid)
    local next, own_bytes
    if to then next, own_bytes = add_id(tvb, to, packet, f.scid) end
    if not next then return end
    if version == 0 then
        for n = next, tvb:len() - 4, 4 do packet:add(f.offered, tvb(n, 4)) end
        return tvb:len(), name
    elseif version ~= VERSION then
        return tvb:len(), name
    end
    id_bytes[sender(pinfo)] = own_bytes
    if name == "Retry" then
        local token = tvb:len() - INTEGRITY_BYTES - next
        if token <= 0 then return end
        packet:add(f.token, tvb(next, token))
        packet:add(f.integrity, tvb(next + token, INTEGRITY_BYTES))
        return tvb:len(), name
    end
    if name == "Initial" or name == "Early" then
        local bytes, header = varint(tvb, next)
        if not bytes or next + header + bytes > tvb:len() then return end
        if bytes > 0 then packet:add(f.token, tvb(next + header, bytes)) end
        next = next + header + bytes
    end
    local bytes, header = varint(tvb, next)
    if not bytes or next + header + bytes > tvb:len() then return end
    packet:add(f.length, tvb(next, header), UInt64(bytes))
    packet:add(f.protected, tvb(next + header, bytes))
    packet:set_len(next + header + bytes - at)
    return next + header + bytes, name
end

-- Notes the epoch of a direction; what an exchange is called if this packet is the first of a newer epoch.
local function note_epoch(pinfo, epoch)
    local direction = sender(pinfo) .. " " .. receiver(pinfo)
    if not pinfo.visited then
        local before = epochs[direction]
        -- Packets that were overtaken belong to an epoch before (P-17: open epochs are less than 32 apart).
        if before and bit.band(epoch - before, 31) > 0 and bit.band(epoch - before, 31) < 16 then
            exchanges[pinfo.number] = string.format("epoch %d takes the place of epoch %d", epoch, before)
        end
        if not before or exchanges[pinfo.number] then epochs[direction] = epoch end
    end
    return exchanges[pinfo.number]
end

local function short_packet(tvb, at, pinfo, tree)
    local epoch = bit.rshift(bit.band(tvb(at, 1):uint(), 0x7c), 2)
    local packet = tree:add(tvb(at), "Adaptive")
    packet:add(f.long, tvb(at, 1))
    packet:add(f.epoch, tvb(at, 1))
    local bytes = id_bytes[receiver(pinfo)]
    if bytes and at + 1 + bytes < tvb:len() then
        if bytes > 0 then packet:add(f.dcid, tvb(at + 1, bytes)) end
        packet:add(f.protected, tvb(at + 1 + bytes))
    end
    local name = "Adaptive (epoch " .. epoch .. ")"
    local exchange = note_epoch(pinfo, epoch)
    if exchange then
        packet:add(f.exchange, tvb(at, 1), exchange)
        name = name .. ", exchange: " .. exchange
    end
    return name
end

function uts.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "UTS"
    local all = tree:add(uts, tvb())
    local names, at = {}, 0
    while at < tvb:len() do
        if bit.band(tvb(at, 1):uint(), 0x80) == 0 then
            names[#names + 1] = short_packet(tvb, at, pinfo, all)
            break
        end
        local next, name = long_packet(tvb, at, pinfo, all)
        if not next then
            all:add_proto_expert_info(malformed)
            names[#names + 1] = "malformed"
            break
        end
        names[#names + 1] = name
        at = next
    end
    pinfo.cols.info = table.concat(names, " + ")
    return tvb:len()
end

-- A datagram that begins with an establishment packet of this version makes its conversation one of UTS.
uts:register_heuristic("udp", function(tvb, pinfo, tree)
    if tvb:len() < 7 or bit.band(tvb(0, 1):uint(), 0xfc) ~= 0x80 or tvb(1, 4):uint() ~= VERSION then return false end
    pinfo.conversation = uts
    uts.dissector(tvb, pinfo, tree)
    return true
end)

DissectorTable.get("udp.port"):add_for_decode_as(uts)
