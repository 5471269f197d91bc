/* Boot options for OpenIPMI's ipmi_sim, which supports only the device of parameter 5:
 * all of parameter 5 (boot flags) and parameter 7 (boot initiator mailbox), after
 * sections 28.12 and 28.13 of the IPMI 2.0 specification. Loaded by
 * `loadlib "options.so" "DIRECTORY"`; the flags are five bytes in DIRECTORY/flags, so
 * that the machine can read them at power-on and clear flags for one boot. With a file
 * DIRECTORY/no-mailbox there is no parameter 7, as in BMCs that do not have it. */
#include <stdio.h>
#include <string.h>
#include <OpenIPMI/mcserv.h>
#include <OpenIPMI/serv.h>
#include <unistd.h>

#define OK 0x00
#define NO_PARAMETER 0x80
#define BAD_LENGTH 0xc7
#define BAD_FIELD 0xcc
#define FLAGS 5
#define MAILBOX 7
#define BLOCKS 5
#define BLOCK 16

static char path[4096], no_mailbox[4096];
static unsigned char blocks[BLOCKS][BLOCK];

static void read_flags(unsigned char flags[5])
{
    FILE *file = fopen(path, "rb");

    memset(flags, 0, 5);
    if (!file)
        return;
    if (fread(flags, 1, 5, file) != 5)
        memset(flags, 0, 5);
    fclose(file);
}

static int write_flags(const unsigned char *flags)
{
    FILE *file = fopen(path, "wb");
    int written = file && fwrite(flags, 1, 5, file) == 5;

    return file && fclose(file) == 0 && written;
}

static unsigned char set_option(const unsigned char *data, unsigned int len)
{
    if (len < 1)
        return BAD_LENGTH;
    switch (data[0] & 0x7f) {
    case 0: /* set in progress */
    case 3: /* what clears the valid bit */
    case 4: /* who has read the information */
        return OK;
    case FLAGS:
        if (len < 6)
            return BAD_LENGTH;
        return write_flags(data + 1) ? OK : 0xff;
    case MAILBOX:
        if (access(no_mailbox, F_OK) == 0)
            return NO_PARAMETER;
        if (len < 2 || len > 2 + BLOCK)
            return BAD_LENGTH;
        if (data[1] >= BLOCKS)
            return BAD_FIELD;
        memset(blocks[data[1]], 0, BLOCK);
        memcpy(blocks[data[1]], data + 2, len - 2);
        return OK;
    default:
        return NO_PARAMETER;
    }
}

static void handle_set(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len,
                       void *cb_data)
{
    rdata[0] = set_option(msg->data, msg->len);
    *rdata_len = 1;
}

static void handle_get(lmc_data_t *mc, msg_t *msg, unsigned char *rdata, unsigned int *rdata_len,
                       void *cb_data)
{
    *rdata_len = 1;
    rdata[0] = BAD_LENGTH;
    if (msg->len < 3)
        return;
    rdata[0] = OK;
    rdata[1] = 1; /* version of the parameters */
    rdata[2] = msg->data[0] & 0x7f;
    switch (rdata[2]) {
    case 0:
        rdata[3] = 0;
        *rdata_len = 4;
        break;
    case FLAGS:
        read_flags(rdata + 3);
        *rdata_len = 8;
        break;
    case MAILBOX:
        if (access(no_mailbox, F_OK) == 0) {
            rdata[0] = NO_PARAMETER;
            break;
        }
        if (msg->data[1] >= BLOCKS) {
            rdata[0] = BAD_FIELD;
            break;
        }
        rdata[3] = msg->data[1];
        memcpy(rdata + 4, blocks[msg->data[1]], BLOCK);
        *rdata_len = 4 + BLOCK;
        break;
    default:
        rdata[0] = NO_PARAMETER;
    }
}

int ipmi_sim_module_init(sys_data_t *sys, const char *directory)
{
    if (snprintf(path, sizeof path, "%s/flags", directory) >= (int) sizeof path ||
        snprintf(no_mailbox, sizeof no_mailbox, "%s/no-mailbox", directory) >=
            (int) sizeof no_mailbox)
        return 1;
    return ipmi_emu_register_cmd_handler(0x00, 0x08, handle_set, NULL) ||
           ipmi_emu_register_cmd_handler(0x00, 0x09, handle_get, NULL);
}
